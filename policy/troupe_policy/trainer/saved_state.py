"""The trainer's state on disk: weights that every engine loads, and the state that training needs to continue.

In: the training state (on any number of ranks) and a directory. Out: a checkpoint, or the state that a checkpoint
holds.
Invariants: the files hold whole tensors, so any number of ranks reads what N ranks saved. Rank 0 checks the weights,
and that all files exist, before the first weight changes, and every rank raises its error. With adapters (LoRA) the
weights are published merged; the adapters lie beside them in peft's format, for inference servers, and continue only
on the base model that they were trained on.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..model import checkpoint
from ..model.checkpoint import CheckpointError
from .lora import config_json, is_adapter, merged, own_name, peft_name
from .ranks.shards import gathered, gathered_weights
from .ranks.sharding import put_whole
from .training_state import TrainingState

ADAPTER, REFERENCE = "adapter", "reference"
# names of the adapter's files in peft's format
ADAPTER_FILE, ADAPTER_CONFIG = f"{ADAPTER}/adapter_model.safetensors", f"{ADAPTER}/adapter_config.json"
REFERENCE_FILE = f"{REFERENCE}/weights.safetensors"
# the adapters' file in checkpoints of earlier versions, which did not use peft's format
OLD_ADAPTER_FILE = f"{ADAPTER}/weights.safetensors"


def save(state: TrainingState, directory: Path, with_optimizer: bool) -> tuple[str, int]:
    """Saves a checkpoint. Returns (digest, size in bytes) of the weights.

    Raises OSError or CheckpointError on rank 0, and CheckpointError trainer.failed on every other rank with it.
    """
    ranks, lora, leads = state.ranks, state.lora, state.ranks.is_leader
    # These variables stay empty on ranks that do not lead: such a rank only takes part in gathering.
    weights, companions, parts, described = None, state.companions, {}, {}
    if ranks.size > 1 or lora is not None:
        weights = gathered_weights(state.model, leads)
    if lora is not None and leads:
        parts[ADAPTER_FILE] = {peft_name(name): value for name, value in weights.items() if is_adapter(name)}
        base = str(Path(state.model_dir).absolute())
        companions = {**companions, ADAPTER_CONFIG: config_json(state.model, base)}
        weights = merged(state.model, lora, weights)
        described[ADAPTER] = {
            "rank": lora.rank, "alpha": lora.alpha, "targets": list(lora.targets),
            "base": state.base_digest, "model": base, "file": ADAPTER_FILE,
        }  # fmt: skip
    if with_optimizer and state.reference.is_taken:
        saved = state.saved_reference
        same = saved is not None and saved[0] == state.reference.version and ranks.broadcast(saved[1].is_file())
        parts[REFERENCE_FILE] = saved[1] if same else state.reference.gathered(leads)
        described[REFERENCE] = {"file": REFERENCE_FILE}
    moments = gathered(state.optimizer.named_state(), leads) if with_optimizer else None
    outcome: tuple[str, object] | None = None
    failure: Exception | None = None
    if leads:
        try:
            counters = {"updates": state.optimizer.updates}
            answer = checkpoint.save(
                directory, state.model, companions, moments, counters,
                weights=weights, parts=parts, described=described,
            )  # fmt: skip
            outcome = ("saved", answer)
        except (OSError, CheckpointError) as error:
            outcome, failure = ("failed", str(error)), error
    kind, value = ranks.broadcast(outcome)
    if kind == "failed":
        raise failure or CheckpointError("trainer.failed", str(value))
    if REFERENCE_FILE in parts:
        state.saved_reference = (state.reference.version, directory / REFERENCE_FILE)
    return value


def load(state: TrainingState, directory: Path) -> None:
    """Loads a checkpoint. Raises CheckpointError with the state unchanged.

    One exception: if the optimizer's state does not fit the checkpoint's own weights, the weights are loaded and the
    optimizer is fresh when the error is raised.
    """
    weights, manifest, problem = None, None, None
    if state.ranks.is_leader:
        try:
            manifest = checkpoint.read_manifest(directory)
            _check_files(state, directory, manifest or {})
            weights = _weights(state, directory, manifest or {})
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
        state.saved_reference = (state.reference.version, reference)
    else:
        state.reference.drop()


def _check_files(state: TrainingState, directory: Path, manifest: dict) -> None:
    """Checks that all files exist that the manifest names: without its moments a run would train differently. Raises
    CheckpointError.
    """
    optimizer = manifest.get("optimizer") or {}
    named = [directory / optimizer["file"]] if "file" in optimizer else []
    if state.lora is not None and ADAPTER in manifest:
        named.append(_adapter_file(directory, manifest))
    if REFERENCE in manifest:  # manifests of earlier versions do not name the reference
        named.append(directory / REFERENCE_FILE)
    missing = [str(file.relative_to(directory)) for file in named if not file.is_file()]
    if missing:
        raise CheckpointError(
            "trainer.checkpoint_corrupt",
            f"the manifest in {directory} names {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} missing: "
            "copy the whole checkpoint, or continue from another one",
        )


def _weights(state: TrainingState, directory: Path, manifest: dict) -> dict[str, Tensor]:
    """Reads whole tensors to put into the model, by the model's own names, and checks their shapes. Raises
    CheckpointError.
    """
    described, lora = manifest.get(ADAPTER), state.lora
    if lora is None:
        return checkpoint.read_weights(directory, state.model)
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
        # A state dict leaves out some buffers: training does not change them, but they belong to the model.
        for name, buffer in state.model.named_buffers():
            if name in weights:
                buffer.copy_(weights[name])
