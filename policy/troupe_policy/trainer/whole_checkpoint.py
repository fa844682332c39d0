"""Loads directories whose files hold whole tensors: published weights, and checkpoints of format 1, whose moments and
reference are such files too.

In: the training state and a directory. Out: the state that the directory holds. Invariants: rank 0 checks the weights,
and that all files exist, before the first weight changes; every rank raises rank 0's error. Nothing is written in
format 1 any more.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..model import checkpoint
from ..model.checkpoint import CheckpointError
from .lora import own_name
from .ranks.sharding import put_whole
from .same_model import check_same_model
from .training_state import TrainingState

ADAPTER, REFERENCE = "adapter", "reference"
REFERENCE_FILE = f"{REFERENCE}/weights.safetensors"
# the adapters' file in checkpoints of earlier versions, which did not use peft's format
OLD_ADAPTER_FILE = f"{ADAPTER}/weights.safetensors"


def load(state: TrainingState, directory: Path) -> None:
    """Loads weights, and optimizer and reference if they are there. Raises CheckpointError with the state unchanged.

    One exception: if the optimizer's state does not fit the checkpoint's own weights, the weights are loaded and the
    optimizer is fresh when the error is raised.
    """
    weights, manifest, problem = None, None, None
    if state.ranks.is_leader:
        try:
            manifest = checkpoint.read_manifest(directory)
            _check_files(state, directory, manifest or {})
            weights = _weights(state, directory, manifest or {})
            check_same_model(state, directory, manifest or {})
        except CheckpointError as error:
            problem = (error.code, str(error))
    manifest, problem = state.ranks.broadcast((manifest, problem))
    if problem is not None:
        raise CheckpointError(*problem)
    _put(state, weights)
    described = (manifest or {}).get("optimizer") or {}
    optimizer = directory / described.get("file", checkpoint.OPTIMIZER)
    updates = int(described.get("updates", 0))
    state.optimizer.load_state(checkpoint.tensors_in(optimizer) if optimizer.is_file() else (), updates)
    reference = directory / REFERENCE_FILE
    if reference.is_file():
        state.reference.load(checkpoint.tensors_in(reference))
    else:
        state.reference.drop()
    # The next checkpoint writes the reference anew: checkpoints hold it in shards, which this directory lacks.
    state.saved_reference = None


def missing(directory: Path, names: list[str]) -> CheckpointError:
    return CheckpointError(
        "trainer.checkpoint_corrupt",
        f"the manifest in {directory} names {' and '.join(names)}, which {'is' if len(names) == 1 else 'are'} missing: "
        "copy the whole checkpoint, or continue from another one",
    )


def check_adapter(state: TrainingState, directory: Path, manifest: dict) -> None:
    """Checks that a checkpoint has adapters of the same base, rank and alpha, if the trainer trains adapters. Raises
    CheckpointError.
    """
    described, lora = manifest.get(ADAPTER), state.lora
    if lora is None:
        return
    if described is None:
        raise CheckpointError(
            "trainer.shape_mismatch",
            f"the checkpoint in {directory} has no adapters: the whole model was trained. Remove train.lora, or start a new run "
            "with this checkpoint as its model",
        )
    if described["base"] != state.base_digest:
        raise CheckpointError(
            "trainer.shape_mismatch",
            f"the adapters in {directory} were trained on weights with the digest {described['base'][:12]}…, but the model in "
            f"{state.model_dir} has {state.base_digest[:12]}…: start with the model that the run began with",
        )
    if described["rank"] != lora.rank or described["alpha"] != lora.alpha:
        raise CheckpointError(
            "trainer.shape_mismatch",
            f"the adapters in {directory} have rank {described['rank']} and alpha {described['alpha']}, but train.lora asks for "
            f"rank {lora.rank} and alpha {lora.alpha}: set train.lora as the checkpoint has it",
        )


def _check_files(state: TrainingState, directory: Path, manifest: dict) -> None:
    """Checks that the files of optimizer, adapters and reference exist if the manifest names them: without the
    optimizer's moments, for instance, the run would train differently. Raises CheckpointError.
    """
    optimizer = manifest.get("optimizer") or {}
    named = [directory / optimizer["file"]] if "file" in optimizer else []
    if state.lora is not None and ADAPTER in manifest:
        named.append(_adapter_file(directory, manifest))
    if REFERENCE in manifest:  # manifests of earlier versions do not name the reference
        named.append(directory / REFERENCE_FILE)
    lacking = [str(file.relative_to(directory)) for file in named if not file.is_file()]
    if lacking:
        raise missing(directory, lacking)


def _weights(state: TrainingState, directory: Path, manifest: dict) -> dict[str, Tensor]:
    """Reads whole tensors to put into the model, by the model's own names, and checks their shapes. Raises
    CheckpointError.
    """
    if state.lora is None:
        return checkpoint.read_weights(directory, state.model)
    check_adapter(state, directory, manifest)
    given = {own_name(name): tensor for name, tensor in checkpoint.tensors_in(_adapter_file(directory, manifest))}
    checkpoint.check_shapes(directory, given, state.parameters)
    return given


def _adapter_file(directory: Path, manifest: dict) -> Path:
    return directory / manifest[ADAPTER].get("file", OLD_ADAPTER_FILE)


def _put(state: TrainingState, weights: dict[str, Tensor] | None) -> None:
    if state.ranks.size > 1:
        put_whole(state.model, weights, state.ranks, trainable_only=state.lora is not None)
        return
    assert weights is not None
    with torch.no_grad():
        for name, tensor in state.model.state_dict(keep_vars=True).items():
            if name in weights:
                tensor.copy_(weights[name])
        # A state dict leaves out buffers that are not persistent: training does not change them, but they belong to the
        # model.
        for name, buffer in state.model.named_buffers():
            if name in weights:
                buffer.copy_(weights[name])
