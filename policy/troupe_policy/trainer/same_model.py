"""Checks that a checkpoint belongs to the model that the trainer has loaded.

In: the training state, a checkpoint and its manifest. Out: nothing, or CheckpointError trainer.model_differs, which
names what differs. Invariant: the config is compared and, if the manifest has an optimizer and names its files, the
files for tokenizer and generation. Tensors and adapters are compared elsewhere (`check_shapes`, `check_adapter`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from ..model.checkpoint import COMPANIONS, CheckpointError
from ..model.same_config import config_of, differences
from .training_state import TrainingState


def check_same_model(state: TrainingState, directory: Path, manifest: Mapping) -> None:
    """Does nothing for a directory without a config: a checkpoint in the middle of a call. Raises CheckpointError."""
    if not (directory / "config.json").is_file():
        return
    try:
        differs = differences(config_of(directory), state.config)
    except (OSError, ValueError) as error:
        raise CheckpointError("trainer.checkpoint_corrupt", f"{directory / 'config.json'} cannot be read: {error}; copy the checkpoint again, or use another one") from error
    if differs:
        raise _differs(state, directory, f"config.json: {differs}")
    files = manifest.get("files") if manifest.get("optimizer") else None
    if files is None:  # published weights without an optimizer, or a manifest of format 1, which names no files
        return
    for name in COMPANIONS:
        # transformers writes this file into checkpoints of a model that has none.
        if name == "generation_config.json" and name not in state.companions:
            continue
        ours = hashlib.sha256(state.companions[name]).hexdigest() if name in state.companions else None
        theirs = files[name]["sha256"] if name in files else None
        if ours != theirs:
            raise _differs(state, directory, f"{name} {'is only there' if ours is None else 'is only here' if theirs is None else 'differs'}")


def _differs(state: TrainingState, directory: Path, how: str) -> CheckpointError:
    return CheckpointError(
        "trainer.model_differs", f"the checkpoint in {directory} was trained with another model than the one in {state.model_dir}: {how}"
    )
