"""Measures optimizer steps during which a checkpoint of the trainer's whole state is written, and steps without one.

in   --directory, --rounds, --tokens, --threads
out  one JSON line for each round: seconds (see `measured`), bytes
The model has SmolLM2-135M's shape and random weights. Steps with and without a checkpoint alternate. The blocked time
is that for which the training thread waits for the checkpoint: in the call that begins it, and before the update. The
processor time that the writer's thread takes from training shows in the difference between the two steps.
"""

from __future__ import annotations

import argparse
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from learnerArm import make
from measure.batches import sequences, step_options

from troupe_policy.trainer.trainer import Trainer

SEQUENCES = 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = given.directory / "model"
    make(str(model))
    trainer = Trainer(str(model), "cpu", "float32", 0, lora=None, checkpointing=False)
    batch = sequences([given.tokens // SEQUENCES] * SEQUENCES, trainer.vocabulary)
    options = step_options(given.tokens)

    def step() -> None:
        trainer.step(batch, options)

    step()  # AdamW's moments exist from here on
    for number in range(given.rounds):
        print(json.dumps(measured(trainer, step, given.directory / f"round-{number}")), flush=True)


def measured(trainer: Trainer, step: Callable[[], None], directory: Path) -> dict[str, Any]:
    """Measures one step without and one with a checkpoint; returns seconds by name.

    plain: the step without. publish: writing the weights that engines load. begin: the call that begins the checkpoint.
    waited: time in the step with the checkpoint that waits for the copy to the host's memory. copied, written: time
    from the beginning of that call until the copy, and the files, are complete.
    """
    plain = seconds(step)
    publish = seconds(lambda: trainer.save(directory / "weights", with_optimizer=False))
    began = time.perf_counter()
    saving = trainer.checkpoint(directory / "checkpoint", directory / "weights")
    begin = time.perf_counter() - began
    ended: dict[str, float] = {}

    def note(name: str) -> None:
        ended[name] = time.perf_counter() - began

    saving.add_done_callback(lambda _: note("written"))
    copied = threading.Thread(target=lambda: (trainer.writer.wait_until_copied(), note("copied")))
    copied.start()
    waits: list[float] = []
    wait = trainer.writer.wait_until_copied
    trainer.writer.wait_until_copied = lambda: waits.append(seconds(wait))  # type: ignore[method-assign]
    try:
        beside = seconds(step)
    finally:
        trainer.writer.wait_until_copied = wait  # type: ignore[method-assign]
    size = saving.result().size
    copied.join()
    shutil.rmtree(directory)
    return {"plain": plain, "publish": publish, "begin": begin, "waited": sum(waits), "beside": beside, **ended, "bytes": size}


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
