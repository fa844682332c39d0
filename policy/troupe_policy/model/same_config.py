"""Compares the config of a model with the one that a checkpoint, or published weights, were written with.

In: a model directory. Out: the fields of its config that say how the model computes. Invariant: both sides are read
by the installed transformers, which fills in the fields that an older file lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transformers import AutoConfig

# Fields that say nothing of how the model computes.
IGNORED = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache")


def config_of(directory: str | Path) -> dict:
    """Fields of config.json, with the defaults of its architecture. Raises OSError, ValueError."""
    fields = AutoConfig.from_pretrained(str(directory), local_files_only=True).to_dict()
    return {name: value for name, value in fields.items() if name not in IGNORED}


def differences(theirs: Mapping[str, object], ours: Mapping[str, object]) -> str:
    """Names up to three fields in which `theirs` is not `ours`, with both values; empty if there is none."""
    fields = [name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
    shown = [f"{name} is {theirs.get(name)!r} there and {ours.get(name)!r} here" for name in fields[:3]]
    return "; ".join(shown + ([f"and {len(fields) - 3} more"] if fields[3:] else []))
