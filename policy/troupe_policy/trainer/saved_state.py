"""A trainer's state on disk: weights that every engine loads, and what training needs to go on.

In: a trainer (of any number of ranks) and a directory. Out: a checkpoint, or the trainer in the state of one.
Invariants: what was saved by N ranks is read by any number: the files hold whole tensors. Loading checks everything before the
first weight changes, on rank 0, and every rank hears of what does not fit. With adapters the weights are published merged, and
the adapters lie apart, as peft and inference servers load them; they go on only with the base that they were trained on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..model import checkpoint
from ..model.checkpoint import CheckpointError
from .lora import config_json, is_adapter, merged, own_name, peft_name
from .updates import gathered, gathered_weights

if TYPE_CHECKING:
    from .trainer import Trainer

ADAPTER, REFERENCE = "adapter", "reference"
# peft's names
ADAPTER_FILE, ADAPTER_CONFIG = f"{ADAPTER}/adapter_model.safetensors", f"{ADAPTER}/adapter_config.json"
REFERENCE_FILE = f"{REFERENCE}/weights.safetensors"
# as checkpoints had them before they were peft's
OLD_ADAPTER_FILE = f"{ADAPTER}/weights.safetensors"


def save(trainer: Trainer, directory: Path, with_optimizer: bool) -> tuple[str, int]:
    """Returns (digest, bytes) of the weights. Raises OSError on rank 0, and CheckpointError on the others with it."""
    ranks, lora, leads = trainer.ranks, trainer.lora, trainer.ranks.leads
    # what the ranks that do not lead have of these is empty: they only take part in gathering
    weights, companions, parts, described = None, trainer.companions, {}, {}
    if ranks.size > 1 or lora is not None:
        weights = gathered_weights(trainer.model, leads)
    if lora is not None and leads:
        parts[ADAPTER_FILE] = {peft_name(name): value for name, value in weights.items() if is_adapter(name)}
        base = str(Path(trainer.model_dir).absolute())
        companions = {**companions, ADAPTER_CONFIG: config_json(trainer.model, base)}
        weights = merged(trainer.model, lora, weights)
        described[ADAPTER] = {
            "rank": lora.rank, "alpha": lora.alpha, "targets": list(lora.targets),
            "base": trainer.base_digest, "model": base, "file": ADAPTER_FILE,
        }  # fmt: skip
    if with_optimizer and trainer.reference.is_taken:
        saved = trainer.saved_reference
        same = saved is not None and saved[0] == trainer.reference.taken and ranks.from_leader(saved[1].is_file())
        parts[REFERENCE_FILE] = saved[1] if same else trainer.reference.gathered(leads)
        described[REFERENCE] = {"file": REFERENCE_FILE}
    state = gathered(trainer.updates.named_state(), leads) if with_optimizer else None
    outcome: tuple[str, object] | None = None
    failure: Exception | None = None
    if leads:
        try:
            counters = {"updates": trainer.updates.updates}
            answer = checkpoint.save(
                directory, trainer.model, companions, state, counters,
                weights=weights, parts=parts, described=described,
            )  # fmt: skip
            outcome = ("saved", answer)
        except (OSError, CheckpointError) as error:
            outcome, failure = ("failed", str(error)), error
    kind, value = ranks.from_leader(outcome)
    if kind == "failed":
        raise failure or CheckpointError("trainer.failed", str(value))
    if REFERENCE_FILE in parts:
        trainer.saved_reference = (trainer.reference.taken, directory / REFERENCE_FILE)
    return value


def load(trainer: Trainer, directory: Path) -> None:
    """Raises CheckpointError with the trainer as it was, but for an optimizer's state that does not fit its own weights."""
    weights, manifest, problem = None, None, None
    if trainer.ranks.leads:
        try:
            manifest = checkpoint.read_manifest(directory)
            _check_files(trainer, directory, manifest or {})
            weights = _weights(trainer, directory, manifest or {})
        except CheckpointError as error:
            problem = (error.code, str(error))
    manifest, problem = trainer.ranks.from_leader((manifest, problem))
    if problem is not None:
        raise CheckpointError(*problem)
    _put(trainer, weights)
    described = (manifest or {}).get("optimizer") or {}
    optimizer = directory / described.get("file", checkpoint.OPTIMIZER)
    updates = int(described.get("updates", 0))
    trainer.updates.load_state(checkpoint.tensors_in(optimizer) if optimizer.is_file() else (), updates)
    reference = directory / REFERENCE_FILE
    if reference.is_file():
        trainer.reference.put(checkpoint.tensors_in(reference))
        trainer.saved_reference = (trainer.reference.taken, reference)
    else:
        trainer.reference.drop()


def _check_files(trainer: Trainer, directory: Path, manifest: dict) -> None:
    """Training that goes on with fresh moments would be another training: what the manifest names has to be there."""
    optimizer = manifest.get("optimizer") or {}
    named = [directory / optimizer["file"]] if "file" in optimizer else []
    if trainer.lora is not None and ADAPTER in manifest:
        named.append(_adapter_file(directory, manifest))
    if REFERENCE in manifest:  # earlier ones do not say
        named.append(directory / REFERENCE_FILE)
    missing = [str(file.relative_to(directory)) for file in named if not file.is_file()]
    if missing:
        raise CheckpointError(
            "trainer.checkpoint_corrupt",
            f"the manifest in {directory} names {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not there: "
            "copy the checkpoint whole, or go on from another one",
        )


def _weights(trainer: Trainer, directory: Path, manifest: dict) -> dict[str, Tensor]:
    """What is to be put into the model, by the model's own names; whole, and of the right shapes."""
    described, lora = manifest.get(ADAPTER), trainer.lora
    if lora is None:
        return checkpoint.read_weights(directory, trainer.model)
    if described is None:
        raise CheckpointError(
            "trainer.shape_mismatch",
            f"the checkpoint in {directory} has no adapters: it was trained whole. Leave train.lora out, or begin a run with it "
            "as the model",
        )
    if described["base"] != trainer.base_digest:
        raise CheckpointError(
            "trainer.shape_mismatch",
            f"the adapters in {directory} were trained on weights of digest {described['base'][:12]}…, the model in "
            f"{trainer.model_dir} has {trainer.base_digest[:12]}…: start with the model that the run began with",
        )
    if described["rank"] != lora.rank or described["alpha"] != lora.alpha:
        raise CheckpointError(
            "trainer.shape_mismatch",
            f"the adapters in {directory} have rank {described['rank']} and alpha {described['alpha']}, train.lora asks for "
            f"{lora.rank} and {lora.alpha}",
        )
    given = {own_name(name): tensor for name, tensor in checkpoint.tensors_in(_adapter_file(directory, manifest))}
    checkpoint.check_shapes(directory, given, trainer.parameters)
    return given


def _adapter_file(directory: Path, manifest: dict) -> Path:
    return directory / manifest[ADAPTER].get("file", OLD_ADAPTER_FILE)


def _put(trainer: Trainer, weights: dict[str, Tensor] | None) -> None:
    if trainer.ranks.size > 1:
        from .ranks.sharding import put_whole

        put_whole(trainer.model, weights, trainer.ranks, trainable_only=trainer.lora is not None)
        return
    assert weights is not None
    with torch.no_grad():
        for name, tensor in trainer.model.state_dict(keep_vars=True).items():
            if name in weights:
                tensor.copy_(weights[name])
        # those that a state dict leaves out: nothing trains them, but they are part of the model's form
        for name, buffer in trainer.model.named_buffers():
            if name in weights:
                buffer.copy_(weights[name])
