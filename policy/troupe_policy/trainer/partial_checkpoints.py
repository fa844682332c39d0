"""Checkpoints in the middle of a long call (a fine-tuning, an RL step of several updates), from which a restarted
trainer resumes the call.

In: the training state, the call's progress. Out: checkpoints whose names end with their number of updates; the progress
that a checkpoint holds.
Invariants: a checkpoint belongs to one call. Its manifest names the call's data and options; a call with other data or
options refuses the checkpoint before a weight changes. A call that resumes on the same number of ranks ends with the
weights and losses of an uninterrupted call. No call draws random numbers of torch (dropout is off), so none are saved.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..model.checkpoint import CheckpointError
from . import saved_state
from .checkpoint_writer import SavedCheckpoint
from .training_state import TrainingState

logger = logging.getLogger("troupe_policy")

OnSaved = Callable[[str, int, SavedCheckpoint], None]


@dataclass(frozen=True)
class PartialCheckpoints:
    """prefix: path of the checkpoints, whose names end with the number of updates. every: optimizer updates between two
    checkpoints; 0 writes none. resume: directory of the checkpoint to resume from, or empty. owner: name that the
    caller gives to an RL step; a step with another owner refuses the checkpoint (a fine-tuning ignores it).
    resume_manifest: sha256 that the manifest of `resume` must have, or empty.
    """

    prefix: str = ""
    every: int = 0
    resume: str = ""
    owner: str = ""
    resume_manifest: str = ""


NO_CHECKPOINTS = PartialCheckpoints()


class PartialWriter:
    """Writes the checkpoints of one call and resumes from one.

    kind: key of the call's entry in the manifest. what: names of the call's data and options, as JSON values.
    """

    def __init__(
        self, state: TrainingState, kind: str, what: Mapping[str, object], checkpoints: PartialCheckpoints, on_saved: OnSaved
    ) -> None:
        self._state, self._kind, self._on_saved = state, kind, on_saved
        self._what, self._checkpoints = dict(what), checkpoints
        self._reported = threading.Event()
        self._reported.set()

    def save_if_due(
        self, updates: int, of: int, progress: Callable[[], Mapping[str, object]], tensors: Callable[[], Mapping[str, Tensor]] = dict
    ) -> None:
        """Begins a checkpoint if one is due after update `updates` (of `of` in all); none is written after the last.
        Collective.

        progress: JSON values, the same keys as `resume` returns; called on every rank. tensors: this rank's own, by
        name.
        """
        every = self._checkpoints.every
        if every <= 0 or updates % every != 0 or updates >= of:
            return
        directory = f"{self._checkpoints.prefix}{updates:06}"
        counters = {self._kind: {**self._what, **progress()}}
        try:
            saving = saved_state.begin_checkpoint(self._state, Path(directory), None, counters, tensors())
        except (OSError, CheckpointError) as error:  # rank 0 gets OSError, the others CheckpointError
            self._failed(directory, error)
            return
        reported = self._reported = threading.Event()

        def done(ended: Future[SavedCheckpoint]) -> None:
            try:
                error = ended.exception()
                if error is None:
                    self._on_saved(directory, updates, ended.result())
                else:
                    self._failed(directory, error)
            finally:
                reported.set()

        saving.add_done_callback(done)

    def _failed(self, directory: str, error: BaseException) -> None:
        # The call goes on: the next checkpoint may succeed, and after a crash the call resumes from an earlier one.
        logger.warning("the checkpoint %s could not be written: %s", directory, error)

    def wait(self) -> None:
        """Returns when the last checkpoint of this call is written and `on_saved` has been called for it, or it has
        failed. Does not wait for checkpoints of other calls.
        """
        self._reported.wait()

    def resume(self) -> tuple[dict, dict[str, Tensor]]:
        """Loads the checkpoint to resume from; returns its progress and this rank's own tensors. Collective.

        Raises CheckpointError trainer.other_call with nothing changed if a call with another owner, other data or
        options wrote it, or, for a step or a checkpoint with tensors of single ranks, if another number of ranks did.
        """
        directory = Path(self._checkpoints.resume)
        manifest = saved_state.load(self._state, directory, self._checkpoints.resume_manifest, self._refuse_other(directory))
        saved = {key: value for key, value in manifest["optimizer"][self._kind].items() if key not in self._what}
        return saved, saved_state.own_tensors(self._state, directory)

    def _refuse_other(self, directory: Path) -> Callable[[dict], None]:
        def check(manifest: dict) -> None:
            optimizer = manifest.get("optimizer") or {}
            saved = optimizer.get(self._kind) or {}
            ranks = optimizer.get("ranks", 1)
            if any(saved.get(key) != value for key, value in self._what.items()):
                raise CheckpointError(
                    "trainer.other_call",
                    f"the checkpoint in {directory} is not of this call: it holds no call's progress, or that of a call with another owner, other data or other options; start without it",
                )
            # The sums of a step's metrics are per rank, and so are log-probabilities that were saved.
            of_ranks = self._kind == "step" or saved_state.PARTIAL in optimizer
            if of_ranks and ranks != self._state.ranks.size:
                raise CheckpointError(
                    "trainer.other_call",
                    f"the checkpoint in {directory} was written by {ranks} ranks, and this trainer has {self._state.ranks.size}: start without it",
                )

        return check
