"""The trainer: a causal LM with AdamW that is fine-tuned on demonstrations (SFT: recorded conversations to imitate) or
trained by single GRPO steps.

In: token sequences with masks, advantages and the engine's log-probabilities. Out: changed weights and metrics.
Invariants: an `sft` or `step` that fails, is not finite or is cancelled leaves weights and optimizer as they were;
the gradient of a batch does not depend on how it is cut into micro-batches or spread over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..model.unsupported import UnsupportedModel
from . import saved_state
from .fine_tuning import fine_tune
from .grpo_step import grpo_step
from .options import (
    GrpoOptions,
    LoraOptions,
    Metrics,
    SftExample,
    SftOptions,
    TrainerError,
    TrainSequence,
    learning_rate_at,
)
from .training_state import TrainingState


class Trainer(TrainingState):
    """The calls of the Trainer service. The service makes them one at a time."""

    def sft(
        self,
        examples: Sequence[SftExample],
        options: SftOptions,
        on_progress: Callable[[float, float], None] = lambda done, loss: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Metrics:
        """Fine-tunes on masked tokens. The loss of a batch is the mean over its masked tokens, in nats.

        The optimizer is fresh before the first update and after the last: RL does not inherit the moments of
        imitation. on_progress(share of optimizer steps done, 0 to 1; loss of the newest batch).
        """
        return fine_tune(self, examples, options, on_progress, should_stop)

    def step(
        self,
        sequences: Sequence[TrainSequence],
        options: GrpoOptions,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Metrics:
        """One GRPO step (DESIGN §6): `inner_steps` optimizer updates on the same batch.

        π_old is the policy at the sampling temperature before the first update. All micro-batches of the first inner
        step run on unchanged weights, so their log-probabilities are π_old and no extra forward pass is needed.

        Metrics: `tokensPerSecond` counts all tokens, prompts too, once per inner step. `klEngine` is the mean of log
        π_engine - log π_old over trained tokens, an estimate of KL(π_engine ‖ π_old).

        With kl_coef > 0 the reference is the policy before the first such step, until `reset` takes another or `load`
        changes it.
        """
        return grpo_step(self, sequences, options, should_stop)

    def reset(self, optimizer: bool, reference: bool) -> None:
        """Begins a stage (a part of a run with its own settings). optimizer: drop the moments. reference: make the
        current policy the reference of the KL.
        """
        if optimizer:
            self.optimizer.reset()
        if reference:
            self.reference.take()

    def save(self, directory: str | Path, with_optimizer: bool) -> tuple[str, int]:
        """Writes a checkpoint (see saved_state.py). Returns (digest, size in bytes) of the weights."""
        return saved_state.save(self, Path(directory), with_optimizer)

    def load(self, directory: str | Path) -> None:
        """Loads weights, and optimizer and reference if the checkpoint has them; otherwise the optimizer is fresh and
        there is no reference.
        """
        saved_state.load(self, Path(directory))


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
