"""What a trainer is given: examples, trajectories and the numbers of a call; and the error that refuses them.

In: fields as they came over the wire. Out: checked options. Invariant: what passes `check_*` has a meaning; what does not is
refused with a code and with what to do, before anything is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

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
    targets: tuple[str, ...] = ("all-linear",)


@dataclass(frozen=True)
class SftOptions:
    learning_rate: float
    epochs: int = 1
    batch_sequences: int = 32
    # of all optimizer steps, with a learning rate that rises linearly
    warmup_share: float = 0.04
    # 0: no clipping
    max_grad_norm: float = 1.0
    seed: int = 0
    # after the warm-up: 'cosine' falls to 0, 'constant' stays
    schedule: str = "cosine"


@dataclass(frozen=True)
class GrpoOptions:
    learning_rate: float
    clip_low: float = 0.2
    clip_high: float = 0.28
    loss_norm: str = "batch-tokens"
    inner_steps: int = 1
    micro_batch_tokens: int = 8192
    temperature: float = 1.0
    # 0: no importance weight
    tis_cap: float = 2.0
    max_grad_norm: float = 1.0
    # 0: off
    dual_clip: float = 0.0
    objective: str = "clip"
    # of loss_norm constant: the tokens that a response may have
    constant_tokens: int = 0
    # 0: no reference and no KL
    kl_coef: float = 0.0
    kl_estimator: str = "k3"
    # band of π_old / π_engine outside which a token is left out; a high end of 0 is off
    icepop_low: float = 0.0
    icepop_high: float = 0.0
    # updates of a fresh optimizer over which the learning rate rises linearly; then it stays
    warmup_updates: int = 0


def rising(rate: float, update: int, updates: int) -> float:
    """`rate` after a linear warm-up of `updates` updates; update is 0-based. The first is not 0: a batch is not wasted."""
    return rate * min(1.0, (update + 1) / (updates + 1))


def learning_rate_at(step: int, steps: int, options: SftOptions) -> float:
    """The learning rate of optimizer step `step` (0-based) of `steps`: linear warm-up, then the schedule."""
    warmup = round(options.warmup_share * steps)
    if step < warmup:
        return rising(options.learning_rate, step, warmup)
    if options.schedule == "constant":
        return options.learning_rate
    share = (step - warmup) / max(1, steps - warmup)
    return options.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


def check_sft(options: SftOptions) -> None:
    """Raises TrainerError trainer.bad_option."""
    if options.schedule not in ("cosine", "constant"):
        raise TrainerError("trainer.bad_option", f"schedule {options.schedule!r} is none of cosine, constant")
    if options.epochs < 1 or options.batch_sequences < 1:
        raise TrainerError("trainer.bad_option", "epochs and batchSequences must be at least 1")


def check_grpo(options: GrpoOptions) -> None:
    """Raises TrainerError trainer.bad_option."""
    o = options
    bands = "icepop must be a band 0 <= low < 1 < high, in which π_old / π_engine is trusted"
    problems = [
        (o.loss_norm not in LOSS_NORMS, f"lossNorm {o.loss_norm!r} is none of {', '.join(LOSS_NORMS)}"),
        (o.objective not in OBJECTIVES, f"objective {o.objective!r} is none of {', '.join(OBJECTIVES)}"),
        (o.kl_estimator not in KL_ESTIMATORS, f"klEstimator {o.kl_estimator!r} is none of {', '.join(KL_ESTIMATORS)}"),
        (not o.kl_coef >= 0, "klCoef must not be negative: it would reward leaving the reference"),
        (o.inner_steps < 1, "innerSteps must be at least 1"),
        (o.warmup_updates < 0, "warmupSteps must not be negative"),
        (o.micro_batch_tokens < 1, "microBatchTokens must be at least 1"),
        (not o.temperature > 0, "temperature must be positive: a greedy policy has no gradient"),
        # cispo's weights have no lower end in its paper: 1 turns it off
        (not 0 <= o.clip_low <= 1, "clipLow must be in [0, 1]"),
        (o.clip_low == 1 and o.objective != "cispo", "clipLow must be below 1: the ratio is never below 0"),
        (not o.clip_high >= 0, "clipHigh must be at least 0"),
        (o.loss_norm == "constant" and o.constant_tokens < 1, "lossNorm constant needs constantTokens"),
        (o.objective == "gspo" and o.loss_norm != "sequences", "gspo is a mean over sequences: set lossNorm sequences"),
        (o.dual_clip != 0 and not o.dual_clip > 1, "dualClip must be above 1, or 0 for off"),
        (o.dual_clip != 0 and o.objective == "cispo", "cispo has no dual clip: its weights are bounded already"),
        (o.icepop_high != 0 and not 0 <= o.icepop_low < 1 < o.icepop_high, bands),
        (o.icepop_high != 0 and o.tis_cap > 0, "tisCap and icepop both weigh by π_old / π_engine: set one of them"),
    ]
    for wrong, message in problems:
        if wrong:
            raise TrainerError("trainer.bad_option", message)


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
