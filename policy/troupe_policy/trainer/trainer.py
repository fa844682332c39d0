"""The trainer: a causal LM with AdamW that is fine-tuned on demonstrations (SFT: recorded conversations to imitate) or
trained by single GRPO steps.

In: token sequences with masks, advantages and the engine's log-probabilities. Out: changed weights, metrics,
checkpoints.
Invariants: an `sft` or `step` that fails, is cancelled, or has a loss or gradient that is not finite leaves weights and
optimizer as they were; the gradient of a batch does not depend on how it is cut into micro-batches or spread over
ranks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path

from ..model.unsupported import UnsupportedModel
from . import saved_state
from .checkpoint_writer import SavedCheckpoint
from .batch.example_files import ExampleFiles, ExampleFilesError, SftExample
from .fine_tuning import fine_tune
from .grpo_step import grpo_step
from .options import (
    GrpoOptions,
    LoraOptions,
    Metrics,
    SftOptions,
    TrainerError,
    TrainSequence,
    learning_rate_at,
)
from .partial_checkpoints import NO_CHECKPOINTS, OnSaved, PartialCheckpoints
from .training_state import TrainingState

logger = logging.getLogger("troupe_policy")


class Trainer(TrainingState):
    """The calls of the Trainer service. The service makes them one at a time."""

    def sft(
        self,
        examples: Sequence[SftExample],
        options: SftOptions,
        on_progress: Callable[[float, float], None] = lambda done, loss: None,
        should_stop: Callable[[], bool] = lambda: False,
        checkpoints: PartialCheckpoints = NO_CHECKPOINTS,
        on_saved: OnSaved = lambda directory, updates, saved: None,
    ) -> Metrics:
        """Fine-tunes on the tokens with mask 1. The loss of a batch is the mean over these tokens, in nats.

        The optimizer is fresh before the first update and after the last: RL does not inherit the moments of
        imitation. on_progress(share of optimizer steps done, 0 to 1; loss of the newest batch). on_saved(directory,
        updates done, checkpoint) is called from another thread when a checkpoint is complete on disk.
        """
        with self.parallel.alone() if self.parallel is not None else nullcontext():
            return fine_tune(self, examples, options, on_progress, should_stop, checkpoints, on_saved)

    def sft_files(
        self, directory: str, digest: str, options: SftOptions, checkpoints: PartialCheckpoints, **callbacks: Callable
    ) -> Metrics:
        """Fine-tunes on the demonstrations in `directory`, whose manifest.json has the sha256 `digest`. Each rank reads
        only its own share of each batch. Raises TrainerError trainer.bad_examples on every rank if the files cannot be
        read or have another digest.
        """
        problem, examples = None, None
        try:
            examples = ExampleFiles(directory, digest, rank=self.ranks.rank, ranks=self.ranks.size)
        except ExampleFilesError as error:
            problem = str(error)
        for said in self.ranks.every(problem):
            raise TrainerError("trainer.bad_examples", said)
        return self.sft(examples, options, checkpoints=checkpoints, **callbacks)

    def step(
        self,
        sequences: Sequence[TrainSequence],
        options: GrpoOptions,
        checkpoints: PartialCheckpoints = NO_CHECKPOINTS,
        should_stop: Callable[[], bool] = lambda: False,
        on_saved: OnSaved = lambda directory, updates, saved: None,
    ) -> Metrics:
        """One GRPO step: `inner_steps` passes over the batch, with an optimizer update for each mini-batch.

        π_old is the policy at the sampling temperature before the first update. The first pass over the first
        mini-batch runs on unchanged weights, so its log-probabilities are π_old; the other mini-batches need a forward
        pass of their own. With the correction `engine-logprobs` the engine's log-probabilities are π_old.

        Metrics: `tokensPerSecond` counts all tokens, prompts too, once per inner step. `klEngine` is the mean of log
        π_engine - log π_old over trained tokens, an estimate of KL(π_engine ‖ π_old); with `engine-logprobs` the
        trainer's policy in the first inner step takes the place of π_old. `entropy` is measured in the first inner
        step, so all mini-batches but the first are measured after an update. `tisMean` is the mean weight of the
        correction, `maskedShare` (icepop: `icepopMasked`) the share of trained tokens with the weight 0. `gradNorm` and
        `lr` are those of the last update.

        A step that resumes from one of its checkpoints ends with the weights and metrics of an uninterrupted step. If
        it fails after it has loaded the checkpoint, the weights are those before this call. on_saved: see `sft`.

        With kl_coef > 0 the reference is the policy before the first such step, until `reset` takes another or `load`
        changes it.

        sequences: rank 0's; those of other ranks are ignored. Each rank gets only the sequences that it trains on.
        """
        return grpo_step(self, sequences, options, checkpoints, should_stop, on_saved)

    def led_step(
        self, options: GrpoOptions, checkpoints: PartialCheckpoints, sequences: Sequence[TrainSequence] = (), **callbacks: Callable
    ) -> Metrics:
        """Makes a `step` whose sequences and callbacks only rank 0 gives."""
        return self.step(sequences, options, checkpoints, **callbacks)

    def reset(self, optimizer: bool, reference: bool) -> None:
        """Begins a stage (a part of a run with its own settings). optimizer: drop the moments. reference: make the
        current policy the reference of the KL.
        """
        if optimizer:
            self.optimizer.reset()
        if reference:
            self.reference.take()

    def sleep(self) -> None:
        """Moves weights and optimizer to the host's memory; returns when every rank has done so. Until `wake` no other
        call is allowed. Collective.
        """
        self.writer.wait_until_copied()
        moments = (value for _, value in self.optimizer.named_state())
        self.parked.park([*self.model.parameters(), *self.model.buffers(), *moments])
        self.ranks.any(False)

    def wake(self) -> None:
        """Moves weights and optimizer back. Does nothing if the trainer does not sleep."""
        self.parked.restore()

    def save(self, directory: str | Path, with_optimizer: bool) -> dict:
        """Publishes the weights, or writes a whole checkpoint (see saved_state.py). Returns the weights' manifest."""
        return saved_state.save(self, Path(directory), with_optimizer)

    def checkpoint(self, directory: str | Path, weights: str | Path) -> Future[SavedCheckpoint]:
        """Begins to write a checkpoint while training goes on. weights: directory to which `save` published the same
        weights.
        """
        saving = saved_state.begin_checkpoint(self, Path(directory), Path(weights))
        if not self.ranks.is_leader:  # on the other ranks nobody asks for the result
            saving.add_done_callback(lambda ended: self._log_failed(directory, ended.exception()))
        return saving

    def _log_failed(self, directory: str | Path, error: BaseException | None) -> None:
        if error is not None:
            logger.warning("rank %s: its part of the checkpoint %s could not be written: %s", self.ranks.rank, directory, error)

    def load(self, directory: str | Path, manifest: str = "") -> None:
        """Loads weights, and optimizer and reference if the checkpoint has them; otherwise the optimizer is fresh and
        there is no reference. manifest: sha256 that the checkpoint's manifest must have; empty turns the check off.
        """
        saved_state.load(self, Path(directory), manifest)


__all__ = [
    "GrpoOptions",
    "LoraOptions",
    "Metrics",
    "SftExample",
    "SftOptions",
    "TrainSequence",
    "Trainer",
    "TrainerError",
    "UnsupportedModel",
    "learning_rate_at",
]
