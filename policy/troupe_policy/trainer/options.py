"""What a trainer is given: examples, trajectories and the numbers of a call; and the error that refuses them.

In: fields as they came over the wire. Out: checked options. Invariant: no option has a default here, since the recipe's schema
has them all; an option that did not come over the wire is refused. The schema also refuses fields that contradict each other;
what is checked here is what Python alone knows: the names that it implements, and the model's vocabulary and context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from google.protobuf.message import Message

from .losses.kl import KL_ESTIMATORS
from .losses.loss_norm import LOSS_NORMS
from .losses.policy_loss import OBJECTIVES

Metrics = dict[str, float]


class TrainerError(RuntimeError):
    """Why a call was refused or rejected. `code` is for programs: trainer.not_finite, trainer.bad_sequence, …"""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class SftExample:
    """tokens [n] int32; mask [n] uint8, 1 where the loss counts."""

    tokens: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class TrainSequence:
    """One trajectory. tokens [n] int32; mask [n] uint8, 1 where sampled; engine_logprobs [n] float32, natural log."""

    trajectory: str
    tokens: np.ndarray
    mask: np.ndarray
    engine_logprobs: np.ndarray
    advantage: float
    group: int


@dataclass(frozen=True)
class LoraOptions:
    """Low-rank adapters (2106.09685): W + (alpha / rank)·B·A on the modules named by `targets`; the rest is frozen.

    targets: names of modules as peft takes them (ends of their paths), or 'all-linear': every linear one but the head.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]


@dataclass(frozen=True)
class SftOptions:
    """SftOptions of policy.proto."""

    learning_rate: float
    epochs: int
    batch_sequences: int
    # share of all optimizer steps in which the learning rate rises linearly; then it falls along a cosine to 0
    warmup_share: float
    # 0: no clipping
    max_grad_norm: float
    seed: int


@dataclass(frozen=True)
class GrpoOptions:
    """StepOptions of policy.proto."""

    learning_rate: float
    clip_low: float
    clip_high: float
    loss_norm: str
    inner_steps: int
    micro_batch_tokens: int
    temperature: float
    # 0: no importance weight
    tis_cap: float
    max_grad_norm: float
    objective: str
    # 0: off
    dual_clip: float
    # tokens that a response may have, for loss_norm constant
    constant_tokens: int
    # 0: no reference and no KL
    kl_coef: float
    kl_estimator: str
    # band of π_old / π_engine outside which a token is left out; a high end of 0 is off
    icepop_low: float
    icepop_high: float
    # updates of a fresh optimizer over which the learning rate rises linearly; then it stays
    warmup_updates: int


Options = TypeVar("Options", SftOptions, GrpoOptions)


def options_of(kind: type[Options], given: Message) -> Options:
    """`given`, a message of policy.proto whose fields have presence, as `kind`. Raises TrainerError trainer.bad_option."""
    names = [field.name for field in fields(kind)]
    missing = [name for name in names if not given.HasField(name)]
    if missing:
        message = f"{given.DESCRIPTOR.name} lacks {', '.join(missing)}; the caller must send every option of the recipe"
        raise TrainerError("trainer.bad_option", message)
    return kind(**{name: getattr(given, name) for name in names})


def rising(rate: float, update: int, updates: int) -> float:
    """`rate` after a linear warm-up of `updates` updates; update is 0-based. The first is not 0: a batch is not wasted."""
    return rate * min(1.0, (update + 1) / (updates + 1))


def learning_rate_at(step: int, steps: int, options: SftOptions) -> float:
    """The learning rate of optimizer step `step` (0-based) of `steps`: linear warm-up, then a cosine down to 0."""
    warmup = round(options.warmup_share * steps)
    if step < warmup:
        return rising(options.learning_rate, step, warmup)
    share = (step - warmup) / max(1, steps - warmup)
    return options.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


def check_names(options: GrpoOptions) -> None:
    """Raises TrainerError trainer.bad_option where a name is none that this package implements."""
    for field, name, known in (
        ("lossNorm", options.loss_norm, LOSS_NORMS),
        ("objective", options.objective, OBJECTIVES),
        ("klEstimator", options.kl_estimator, KL_ESTIMATORS),
    ):
        if name not in known:
            raise TrainerError("trainer.bad_option", f"{field} {name!r} is none of {', '.join(known)}")


def checked_mask(
    name: str,
    tokens: np.ndarray,
    mask: np.ndarray,
    engine_logprobs: np.ndarray | None,
    *,
    vocabulary: int,
    context_tokens: int,
) -> np.ndarray:
    """The mask [n] bool without the first token, which nothing predicts; raises where the arrays cannot be trained on."""
    count = len(tokens)
    if len(mask) != count or (engine_logprobs is not None and len(engine_logprobs) != count):
        raise TrainerError("trainer.bad_sequence", f"{name}: tokens, mask and logprobs differ in length")
    if count == 0:
        raise TrainerError("trainer.bad_sequence", f"{name}: no tokens")
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocabulary:
        raise TrainerError("trainer.bad_sequence", f"{name}: a token id is outside the {vocabulary} of the model")
    if context_tokens and count > context_tokens:
        raise TrainerError("trainer.context_exceeded", f"{name}: {count} tokens do not fit the model's {context_tokens}")
    trained = mask.astype(bool)
    trained[0] = False
    if engine_logprobs is not None and not np.isfinite(engine_logprobs[trained]).all():
        raise TrainerError("trainer.not_finite", f"{name}: an engine log-probability is not finite")
    return trained
