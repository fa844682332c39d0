"""Arguments of a trainer's calls: trajectories and options; and the error that refuses them.

In: fields as they came over the wire. Out: checked arguments. Invariants: no option has a default here, since the
recipe's schema has all defaults; a message that lacks an option is refused. The schema also refuses contradicting
fields; this file checks only what the schema cannot know: the names that this package implements, the arrays, and the
model's vocabulary and context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from google.protobuf.message import Message

from .batch.mini_batch import MINI_BATCH_UNITS
from .losses.importance_weight import CORRECTIONS
from .losses.kl import KL_ESTIMATORS
from .losses.loss_norm import LOSS_NORMS
from .losses.policy_loss import OBJECTIVES

Metrics = dict[str, float]


class TrainerError(RuntimeError):
    """A call was refused or failed, the trainer could not be made, or a rank was lost. `code` is for programs:
    trainer.not_finite, trainer.bad_sequence, …
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class TrainSequence:
    """One trajectory.

    tokens: int32 [n]. mask: uint8 [n], 1 for tokens that the model sampled. engine_logp: float32 [n], natural log,
    under the distribution that the engine sampled from. advantage: of the whole trajectory. group: number of its
    group in the batch.
    """

    trajectory: str
    tokens: np.ndarray
    mask: np.ndarray
    engine_logp: np.ndarray
    advantage: float
    group: int


@dataclass(frozen=True)
class LoraOptions:
    """Options of low-rank adapters (arXiv 2106.09685): modules named by `targets` compute with W + (alpha / rank)·B·A,
    where only A and B are trained; W and the rest of the model are frozen.

    targets: names of linear modules as peft takes them (ends of their paths), or 'all-linear' for all but the head.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]


@dataclass(frozen=True)
class SftOptions:
    """Options of a fine-tuning: message SftOptions of policy.proto."""

    learning_rate: float
    epochs: int
    batch_sequences: int
    # share of all optimizer steps in which the learning rate rises linearly; then it falls along a cosine towards 0
    warmup_share: float
    # bound on the gradient's norm; 0 turns clipping off
    max_grad_norm: float
    seed: int


@dataclass(frozen=True)
class GrpoOptions:
    """Options of a GRPO step: message StepOptions of policy.proto."""

    learning_rate: float
    clip_low: float
    clip_high: float
    loss_norm: str
    inner_steps: int
    micro_batch_tokens: int
    temperature: float
    max_grad_norm: float
    objective: str
    # factor c that bounds the loss of tokens with a negative advantage, see policy_loss; 0 is off
    dual_clip: float
    # token budget of a response, which loss_norm `constant` divides by
    constant_tokens: int
    # coefficient of the KL to the reference; 0 turns the KL and the reference off
    kl_coef: float
    kl_estimator: str
    # number of updates of a fresh optimizer over which the learning rate rises linearly; then the learning rate stays
    # constant
    warmup_updates: int
    # correction for the engine's policy, see importance_weight.py, and its bounds on π_old / π_engine; 0 for a bound
    # that the correction does not have
    correction: str
    correction_low: float
    correction_high: float
    # upper bound on the mini-batches, of whole groups or sequences, into which the batch is cut; each gets one
    # optimizer update
    mini_batches: int
    mini_batch_unit: str
    mini_batch_seed: int


Options = TypeVar("Options", SftOptions, GrpoOptions)


def options_of(kind: type[Options], given: Message) -> Options:
    """Converts `given`, a message of policy.proto whose fields have presence, to `kind`. Raises TrainerError
    trainer.bad_option if a field is missing.
    """
    names = [field.name for field in fields(kind)]
    missing = [name for name in names if not given.HasField(name)]
    if missing:
        message = f"{given.DESCRIPTOR.name} lacks {', '.join(missing)}: the caller must send every option of the recipe"
        raise TrainerError("trainer.bad_option", message)
    return kind(**{name: getattr(given, name) for name in names})


def linear_warmup(rate: float, update: int, updates: int) -> float:
    """Learning rate of update `update` (0-based): rises linearly to `rate` over `updates` updates, then stays constant.

    The first rate is above 0, so that no batch is wasted.
    """
    return rate * min(1.0, (update + 1) / (updates + 1))


def learning_rate_at(step: int, steps: int, options: SftOptions) -> float:
    """Learning rate of optimizer step `step` (0-based) of `steps`: linear warm-up, then a cosine that would be 0 at
    `steps`.
    """
    warmup = round(options.warmup_share * steps)
    if step < warmup:
        return linear_warmup(options.learning_rate, step, warmup)
    share = (step - warmup) / max(1, steps - warmup)
    return options.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


def check_names(options: GrpoOptions) -> None:
    """Checks the names in the options. Raises TrainerError trainer.bad_option for a name that this package does not
    implement.
    """
    for field, name, known in (
        ("lossNorm", options.loss_norm, LOSS_NORMS),
        ("objective", options.objective, OBJECTIVES),
        ("klEstimator", options.kl_estimator, KL_ESTIMATORS),
        ("correction", options.correction, CORRECTIONS),
        ("miniBatchUnit", options.mini_batch_unit, MINI_BATCH_UNITS),
    ):
        if name not in known:
            raise TrainerError("trainer.bad_option", f"train.{field} is {name!r}: expected one of {', '.join(known)}")


def trained_mask(
    name: str,
    tokens: np.ndarray,
    mask: np.ndarray,
    engine_logp: np.ndarray | None,
    *,
    vocabulary: int,
    context_tokens: int,
) -> np.ndarray:
    """Checks a sequence and returns the mask of its trained tokens, bool [n]: `mask` without the first token, which no
    token predicts.

    tokens: int32 [n]. mask: uint8 [n]. engine_logp: float32 [n] or None. name: the sequence, for errors. vocabulary:
    ids must be below it. context_tokens: upper bound on n, 0 for none. Raises TrainerError trainer.bad_sequence (no
    token, lengths that differ, an id outside the vocabulary), trainer.context_exceeded, or trainer.not_finite
    (engine_logp at a trained token).
    """
    count = len(tokens)
    scored = "" if engine_logp is None else f", {len(engine_logp)} logprobs"
    if len(mask) != count or (engine_logp is not None and len(engine_logp) != count):
        raise TrainerError("trainer.bad_sequence", f"{name}: tokens, mask and logprobs differ in length ({count} tokens, {len(mask)} in the mask{scored})")
    if count == 0:
        raise TrainerError("trainer.bad_sequence", f"{name} has no tokens")
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocabulary:
        raise TrainerError("trainer.bad_sequence", f"{name}: a token id is outside the model's vocabulary of {vocabulary}")
    if context_tokens and count > context_tokens:
        raise TrainerError("trainer.context_exceeded", f"{name}: {count} tokens do not fit the model's context of {context_tokens}")
    trained = mask.astype(bool)
    trained[0] = False
    if engine_logp is not None and not np.isfinite(engine_logp[trained]).all():
        raise TrainerError("trainer.not_finite", f"{name}: a log-probability from the engine is not finite")
    return trained
