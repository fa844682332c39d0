"""Corrections for tokens that were sampled by another policy than π_old, the trainer's policy before the step.

In: log-probabilities of sampled tokens under π_old and under the engine (π_engine); the two differ by kernels, by
precision and by the age of the engine's weights. Out: one weight per token for the policy term of the loss, without a
graph.
Invariant: a weight of 0 leaves the token out of the policy term, but the denominators of loss_norm.py still count the
token.
Source: truncated: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"; masked and
geometric-mask: Liu et al. 2025, "When speed kills stability"; icepop: arXiv 2510.18855 §3; engine-logprobs: the ratio
of PPO (1707.06347 eq. 6) with the policy that sampled as π_old.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .policy_loss import MAX_LOG_RATIO, sequence_mean

# Names that options.correction may have. `engine-logprobs` has no weight: the engine's log-probabilities take the place
# of π_old in the clipped ratio.
CORRECTIONS = ("none", "truncated", "masked", "icepop", "geometric-mask", "engine-logprobs")


def importance_weight(
    correction: str, low: float, high: float, old_logp: Tensor, engine_logp: Tensor, mask: Tensor, sequence: Tensor
) -> Tensor | None:
    """Weights of the correction `correction`, [tokens] float32; None if every weight is 1.

    low, high: bounds on π_old / π_engine, for geometric-mask on its geometric mean over a sequence; truncated uses only
    `high`. old_logp, engine_logp, mask: [tokens], float32. sequence: [tokens], int64 from 0, the index of each token's
    sequence. Raises ValueError for another name and for bounds that the correction cannot have.
    """
    if correction in ("none", "engine-logprobs"):
        return None
    if correction == "truncated":
        return truncated_weight(old_logp, engine_logp, high)
    if correction in ("masked", "icepop"):
        return masked_weight(old_logp, engine_logp, low, high)
    if correction == "geometric-mask":
        return geometric_mask(old_logp, engine_logp, mask, sequence, low, high)
    raise ValueError(f"correction is {correction!r}: expected one of {', '.join(CORRECTIONS)}")


def truncated_weight(old_logp: Tensor, engine_logp: Tensor, cap: float) -> Tensor:
    """Truncated importance sampling (TIS): min(π_old / π_engine, cap).

    old_logp, engine_logp: [tokens], float32, natural log. Returns [tokens], float32. cap > 0, else ValueError.
    """
    if cap <= 0:
        raise ValueError(f"the cap of the importance weight is {cap}: it must be positive")
    return torch.exp((old_logp - engine_logp).detach()).clamp(max=cap)


def masked_weight(old_logp: Tensor, engine_logp: Tensor, low: float, high: float) -> Tensor:
    """Masked importance sampling (MIS) and IcePop: π_old / π_engine if it lies in [low, high], else 0, so that tokens
    on which trainer and engine disagree are not trained on. IcePop's paper uses the band 0.5 to 5.

    old_logp, engine_logp: [tokens], float32, natural log. Returns [tokens], float32. 0 <= low < high, else
    ValueError.
    """
    _check_band(low, high)
    ratio = torch.exp((old_logp - engine_logp).detach())
    return torch.where((ratio >= low) & (ratio <= high), ratio, torch.zeros_like(ratio))


def geometric_mask(
    old_logp: Tensor, engine_logp: Tensor, mask: Tensor, sequence: Tensor, low: float, high: float
) -> Tensor:
    """1 at every token of a sequence whose geometric mean of π_old / π_engine over its trained tokens lies in [low,
    high], else 0: the sequence is left out whole. The geometric mean, unlike the product, does not shrink with the
    length.

    old_logp, engine_logp, mask: [tokens], float32. sequence: [tokens], int64 from 0. Returns [tokens], float32.
    0 <= low < high, else ValueError.
    """
    _check_band(low, high)
    log_ratio = (old_logp - engine_logp).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    mean = torch.exp(sequence_mean(log_ratio, mask, sequence))
    return ((mean >= low) & (mean <= high)).to(old_logp.dtype)


def _check_band(low: float, high: float) -> None:
    if not 0 <= low < high:
        raise ValueError(f"the band of the importance ratio is {low} to {high}: expected 0 <= low < high")
