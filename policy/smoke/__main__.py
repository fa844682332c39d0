"""`python policy/smoke`: checks results and measures speed on one device, and prints a line of JSON for each figure.

In: --device, the shape of a model (random weights; nothing is fetched), --only to choose checks. Out: JSON lines
{check, figure, value, unit, bound, ok}, first one about the device. Exit code 1 if a figure is out of its bound.
Invariant: a check that raises an error counts as a failed figure with the reason; the other checks still run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from figures import Figure
from models import SHAPES, make_model

import parity
import rates

# Checks run in this order: wrong results should be known before speeds.
CHECKS: dict[str, Callable[[Path, torch.device], Iterator[Figure]]] = {
    "head": parity.head,
    "bfloat16": parity.bfloat16,
    "attention": parity.attention,
    "attention kernels": parity.kernels,
    "compile": parity.compiled,
    "engine": parity.engine,
    "head time": rates.head,
    "generation": rates.generation,
    "training": rates.training,
}


def described(device: torch.device) -> dict[str, object]:
    """Name and memory of the device, and the versions that the figures depend on."""
    said: dict[str, object] = {"device": str(device), "torch": torch.__version__, "threads": torch.get_num_threads()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        said |= {"name": properties.name, "memoryGib": round(properties.total_memory / 2**30, 1), "cuda": torch.version.cuda}
    return said


def main() -> int:
    parser = argparse.ArgumentParser(prog="smoke")
    parser.add_argument("--device", default="cuda", help="torch device: cuda, cuda:1, cpu")
    parser.add_argument("--shape", choices=tuple(SHAPES), help="shape of the model; default: 0.5b on a GPU, tiny on a CPU")
    parser.add_argument("--only", choices=tuple(CHECKS), nargs="*", help="checks to run, none after a bare --only; default: all")
    given = parser.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device is visible to torch: --device cpu runs the same checks on a small model")
    shape = given.shape or ("tiny" if device.type == "cpu" else "0.5b")
    emit = lambda line: print(json.dumps(line), flush=True)  # noqa: E731
    emit({"shape": shape, **described(device)})
    failed = 0
    with tempfile.TemporaryDirectory(prefix="troupe-smoke-") as folder:
        model = make_model(Path(folder) / "model", shape)
        for name, check in CHECKS.items():
            if given.only is not None and name not in given.only:
                continue
            try:
                for figure in check(model, device):
                    failed += not figure.ok
                    emit({"check": name, **figure.line()})
            except Exception as error:  # a check that cannot run is a result
                failed += 1
                traceback.print_exc()
                emit({"check": name, "figure": "ran to its end", "ok": False, "why": f"{type(error).__name__}: {error}"})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
