"""The trainer's state on disk: published weights that every engine loads, and checkpoints to continue training from.

In: the training state (on any number of ranks) and a directory. Out: published weights, a checkpoint, or the state that
a checkpoint holds.
Invariants: a checkpoint is a directory with `training/` (the trained parameters in float32, the optimizer's state),
with `reference/` if there is a reference, and with the published weights. A checkpoint in the middle of a call has no
published weights, so engines cannot load it. `training/` and `reference/` are in shards, which any number of ranks can
read. A checkpoint in the middle of an RL step may also have `partial/`, which only the same number of ranks can read.
All files that the manifest names are verified before the first weight changes; if the check fails on one rank, every
rank raises an error. With adapters (LoRA) the published weights are the merged ones. The adapters lie beside them in
peft's format, for inference servers; training continues from them only with the base model that they were trained on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from ..model import checkpoint
from ..model.checkpoint import CheckpointError
from ..model.manifest import FORMAT, check_file, check_unnamed
from . import whole_checkpoint
from .checkpoint_writer import SavedCheckpoint
from .lora import config_json, is_adapter, merged, peft_name
from .ranks.shards import converted, gathered_weights
from .ranks.sharded_files import read_shards, shapes_in
from .same_model import check_same_model
from .training_state import TrainingState
from .whole_checkpoint import ADAPTER, REFERENCE

# names of the adapter's files in peft's format
ADAPTER_FILE, ADAPTER_CONFIG = f"{ADAPTER}/adapter_model.safetensors", f"{ADAPTER}/adapter_config.json"
TRAINING = "training"
# folder of the tensors that each rank of an unfinished RL step saves for itself
PARTIAL = "partial"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def publish(state: TrainingState, directory: Path) -> dict:
    """Publishes the weights, in the dtype that the state names, and returns their manifest. Collective.

    If rank 0 cannot write, it raises OSError or CheckpointError, and every other rank CheckpointError trainer.failed.
    """
    ranks, lora, leads = state.ranks, state.lora, state.ranks.is_leader
    dtype = DTYPES[state.published_dtype]
    # These variables stay empty on ranks that do not lead: such a rank only takes part in gathering.
    weights, companions, parts, described = None, state.companions, {}, {}
    if ranks.size > 1 or lora is not None or dtype != torch.float32:
        weights = gathered_weights(state.model, leads, torch.float32 if lora is not None else dtype)
    if lora is not None and leads:
        parts[ADAPTER_FILE] = {peft_name(name): value for name, value in weights.items() if is_adapter(name)}
        described = _adapter_entry(state)
        companions = {**companions, ADAPTER_CONFIG: config_json(state.model, described[ADAPTER]["model"])}
        weights = converted(merged(state.model, lora, weights), dtype)
    outcome: tuple[str, object] | None = None
    failure: Exception | None = None
    if leads:
        try:
            manifest = checkpoint.save_weights(
                directory, state.model, companions,
                weights=weights, dtype=state.published_dtype, parts=parts, described=described,
            )  # fmt: skip
            outcome = ("saved", manifest)
        except (OSError, CheckpointError) as error:
            outcome, failure = ("failed", str(error)), error
    kind, value = ranks.broadcast(outcome)
    if kind == "failed":
        raise failure or CheckpointError("trainer.failed", str(value))
    return value


def _adapter_entry(state: TrainingState) -> dict:
    """Manifest entry that describes the adapters; {} for a trainer without adapters."""
    lora = state.lora
    if lora is None:
        return {}
    return {
        ADAPTER: {
            "rank": lora.rank, "alpha": lora.alpha, "targets": list(lora.targets),
            "base": state.base_digest, "model": str(Path(state.model_dir).absolute()), "file": ADAPTER_FILE,
        },
    }  # fmt: skip


def begin_checkpoint(
    state: TrainingState, directory: Path, weights: Path | None, counters: Mapping[str, object] | None = None,
    own: Mapping[str, Tensor] | None = None,
) -> Future[SavedCheckpoint]:
    """Begins to write a checkpoint of the state as it is. The future ends when the checkpoint is complete on disk, or
    fails. Collective.

    weights: directory in which `publish` put the same weights; None for a checkpoint that no engine loads. counters:
    further entries of the manifest's `optimizer`. own: this rank's own tensors, which only a trainer with the same
    number of ranks can read; every rank passes some, or none does.
    """
    state.writer.wait()
    parts: dict[str, Mapping[str, Tensor] | Path] = {TRAINING: live_tensors(state)}
    if own:
        parts[PARTIAL] = {f"{state.ranks.rank}/{name}": value for name, value in own.items()}
    saved, version = state.saved_reference, state.reference.version
    if state.reference.is_taken:
        is_same = saved is not None and saved[0] == version and (saved[1] / ".metadata").is_file()
        parts[REFERENCE] = saved[1] if state.ranks.broadcast(is_same) else state.reference.sharded()

    def manifest_entries() -> dict:
        if weights is None:
            described = {"format": FORMAT, **_adapter_entry(state), "files": {}}
        else:
            described = json.loads((weights / checkpoint.MANIFEST).read_text())
        manifest = {**described, "weights": described["files"]}
        manifest["optimizer"] = {
            "directory": TRAINING, "updates": state.optimizer.updates, "ranks": state.ranks.size, **(counters or {}),
            **({PARTIAL: PARTIAL} if own else {}),
        }  # fmt: skip
        if REFERENCE in parts:
            manifest[REFERENCE] = {"directory": REFERENCE}
        return manifest

    saving = state.writer.begin(directory, weights, parts, manifest_entries)

    def done(ended: Future[SavedCheckpoint]) -> None:
        if ended.exception() is None and REFERENCE in parts:
            state.saved_reference = (version, directory / REFERENCE)

    saving.add_done_callback(done)
    return saving


def save(state: TrainingState, directory: Path, with_optimizer: bool) -> dict:
    """Publishes the weights, or with `with_optimizer` writes a whole checkpoint, and returns the weights' manifest."""
    if not with_optimizer:
        return publish(state, directory)
    weights = directory.parent / f".{directory.name}.weights"
    try:
        manifest = publish(state, weights)
        begin_checkpoint(state, directory, weights).result()
        # waits for every rank: rank 0 removes the published files below, and no rank may still look for them
        state.ranks.any(False)
    finally:
        if state.ranks.is_leader:
            shutil.rmtree(weights, ignore_errors=True)
    return manifest


def live_tensors(state: TrainingState) -> dict[str, Tensor]:
    """The tensors of a checkpoint's `training/` folder: trained parameters, the optimizer's moments and step counts,
    and for a model without adapters its persistent buffers.
    """
    tensors = {f"weights/{name}": value.detach() for name, value in _own(state).items()}
    return tensors | {f"optimizer/{key}": value.detach() for key, value in state.optimizer.named_state()}


def _own(state: TrainingState) -> dict[str, Tensor]:
    """Parameters and persistent buffers that a checkpoint holds, by name; a tied weight has its first name only."""
    if state.lora is not None:
        return dict(state.parameters)
    kept: dict[int, tuple[str, Tensor]] = {}
    for name, value in state.model.state_dict(keep_vars=True).items():
        kept.setdefault(id(value), (name, value))
    return dict(kept.values())


def own_tensors(state: TrainingState, directory: Path) -> dict[str, Tensor]:
    """This rank's own tensors, float32, by the names that `begin_checkpoint` got; {} if the checkpoint has none.
    Collective.
    """
    folder, prefix = directory / PARTIAL, f"{state.ranks.rank}/"
    if not folder.is_dir():
        return {}
    kept = {name: torch.empty(shape) for name, shape in shapes_in(folder).items() if name.startswith(prefix)}
    _read(state, kept, folder)
    return {name.removeprefix(prefix): value for name, value in kept.items()}


def load(
    state: TrainingState, directory: Path, expected: str = "", refuse: Callable[[dict], None] = lambda manifest: None
) -> dict:
    """Loads a checkpoint, or published weights, and returns its manifest. Raises CheckpointError with the state
    unchanged, except in two cases: a checkpoint of format 1 whose optimizer state does not fit its own weights leaves
    the weights loaded and the optimizer fresh; a file that changes while it is read leaves the state undefined.

    expected: sha256 that the manifest must have; empty turns the check off. refuse: called with the manifest on rank 0
    before anything changes. If it raises CheckpointError, every rank raises it.
    """
    state.writer.wait_until_copied()
    manifest, problem = None, None
    if state.ranks.is_leader:
        try:
            manifest = checkpoint.read_manifest(directory, expected=expected, verify=False)
            refuse(manifest or {})
        except CheckpointError as error:
            problem = (error.code, str(error))
    manifest, problem = state.ranks.broadcast((manifest, problem))
    if problem is not None:
        raise CheckpointError(*problem)
    described = (manifest or {}).get("optimizer") or {}
    if "directory" not in described:
        whole_checkpoint.load(state, directory)
        return manifest or {}
    _all_agree(state, directory, lambda: _check(state, directory, manifest))
    folder = directory / described["directory"]
    names = list(shapes_in(folder))
    state.optimizer.prepare_state(names, "optimizer/", described["updates"])
    _read(state, live_tensors(state), folder)
    if REFERENCE not in manifest:
        state.reference.drop()
    else:
        kept = state.reference.empty_shards()
        _read(state, kept, directory / REFERENCE)
        state.reference.load_shards(kept)
        state.saved_reference = (state.reference.version, directory / REFERENCE)
    return manifest


def _read(state: TrainingState, tensors: dict[str, Tensor], folder: Path) -> None:
    """Reads shards into `tensors`, in place. Raises CheckpointError on every rank. Collective."""
    try:
        read_shards(tensors, folder, state.ranks.control)
    except CheckpointException as error:  # a BaseException, which the service does not catch: its caller would never get an answer
        raise CheckpointError("trainer.checkpoint_corrupt", f"the shards in {folder} cannot be read: {error}; copy the checkpoint again, or use another one") from error


def _check(state: TrainingState, directory: Path, manifest: dict) -> None:
    """Checks this rank's share of the files against the manifest, and tensors' shapes and the config against the model's."""
    whole_checkpoint.check_adapter(state, directory, manifest)
    check_unnamed(directory, manifest)
    for at, (name, described) in enumerate(manifest["files"].items()):
        if at % state.ranks.size == state.ranks.rank:
            check_file(directory / name, described)
    given = {name.removeprefix("weights/"): torch.empty(shape, device="meta") for name, shape in shapes_in(directory / TRAINING).items() if name.startswith("weights/")}
    checkpoint.check_shapes(directory, given, _own(state))
    check_same_model(state, directory, manifest)


def _all_agree(state: TrainingState, directory: Path, check) -> None:
    """Runs `check` on every rank; an error on one is raised on all. Collective."""
    problem: CheckpointError | None = None
    try:
        check()
    except CheckpointError as error:
        problem = error
    except Exception as error:  # `.metadata` is a pickle: damaged, it may raise anything
        problem = CheckpointError("trainer.checkpoint_corrupt", f"the checkpoint in {directory} cannot be read: {error}; copy it again, or use another one")
    for code, text in state.ranks.every((problem.code, str(problem)) if problem else None):
        raise problem or CheckpointError(code, text)
