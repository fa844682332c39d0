"""The GRPO loss of packed tokens, its normalisations, and KL estimators.

In: log-probabilities of trained tokens under the current, the old and the engine's policy. Out: a scalar to minimise.
Invariant: every token's weight is fixed by the whole optimizer batch before it is split, so the sum of the losses of
the micro-batches, and its gradient, does not depend on how they were cut. There is no KL and no entropy term in the
loss; the KL functions are for metrics and for recipes that add one.
Source: arXiv 2508.20722 eq. 6-7 (GRPO-RoC), 2503.14476 §3.1 (clip-higher), 1912.09729 (dual clip).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# exp(±20) is far outside any clip range: the bound keeps a broken ratio from becoming inf before it is clipped.
MAX_LOG_RATIO = 20.0

LOSS_NORMS = ("batch-tokens", "group-tokens", "sequences")


def advantages(rewards: Sequence[float]) -> list[float]:
    """Advantages of one kept group: (r - mean) / (std + 1e-6), std unbiased; all 0 for one member or equal rewards.

    Source: arXiv 2508.20722 eq. 3 and the release's epsilon. `rewards`: one number a member.
    """
    count = len(rewards)
    if count < 2 or all(reward == rewards[0] for reward in rewards):
        return [0.0] * count
    mean = sum(rewards) / count
    std = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (count - 1))
    return [(reward - mean) / (std + 1e-6) for reward in rewards]


def sequence_denominators(trained_tokens: Sequence[int], groups: Sequence[int], loss_norm: str) -> list[float]:
    """What the loss of every token of sequence i is divided by, so that the loss is a plain sum over tokens.

    batch-tokens: trained tokens of the whole optimizer batch, over all micro-batches.
    group-tokens: tokens of the sequence's group, times the number of groups: eq. 6 within a group (its token sum over
        its tokens), then the mean over groups. Groups without a trained token do not count.
    sequences: own tokens times the number of sequences: the mean over sequences of each one's token mean (eq. 1).
    Returns one number a sequence; 1.0 where a sequence has nothing to train on.
    """
    if loss_norm == "batch-tokens":
        total = sum(trained_tokens)
        return [float(max(1, total))] * len(trained_tokens)
    if loss_norm == "sequences":
        count = sum(1 for tokens in trained_tokens if tokens > 0)
        return [float(max(1, tokens * count)) for tokens in trained_tokens]
    if loss_norm == "group-tokens":
        totals: dict[int, int] = {}
        for tokens, group in zip(trained_tokens, groups, strict=True):
            totals[group] = totals.get(group, 0) + tokens
        count = sum(1 for total in totals.values() if total > 0)
        return [float(max(1, totals[group] * count)) for group in groups]
    raise ValueError(f"loss_norm {loss_norm!r} is none of {', '.join(LOSS_NORMS)}")


@dataclass(frozen=True)
class PolicyLoss:
    """`loss`: scalar, with a graph. `clipped`: [tokens] bool, where the clipped branch was the one that counted."""

    loss: Tensor
    clipped: Tensor


def token_mean_policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    denominator: float | Tensor,
    weight: Tensor | None = None,
    dual_clip: float = 0.0,
) -> PolicyLoss:
    """Clipped policy-gradient loss of packed tokens, in nats, summed and divided by `denominator`.

    logp, old_logp, mask: [tokens], float32; advantage: [tokens], the trajectory's, repeated.
    denominator: a number, or [tokens], from `sequence_denominators` over the *whole* optimizer batch (all micro-batches
        and ranks), so that splitting the batch never changes the gradient.
    weight: [tokens], the truncated importance weight of `tis_weight`, without a graph; None is 1.
    dual_clip: c > 1 bounds the loss of tokens with a negative advantage at -c·A; 0 is off.
    Source: arXiv 2508.20722 eq. 6-7; clip-higher from DAPO (2503.14476) §3.1.
    """
    ratio = torch.exp((logp - old_logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    plain = ratio * advantage
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantage
    objective = torch.minimum(plain, bounded)
    clipped = (bounded < plain) & (mask > 0)
    if dual_clip > 0.0:
        if dual_clip <= 1.0:
            raise ValueError(f"dual_clip must be above 1, or 0 for off; got {dual_clip}")
        floor = dual_clip * advantage
        objective = torch.where(advantage < 0, torch.maximum(objective, floor), objective)
    if weight is not None:
        objective = objective * weight
    # where, not a product with the mask: a NaN at a token that is not trained on must not reach the sum.
    terms = torch.where(mask > 0, objective * mask, torch.zeros_like(objective))
    return PolicyLoss(loss=-(terms / denominator).sum(), clipped=clipped)


def tis_weight(old_logp: Tensor, engine_logp: Tensor, cap: float) -> Tensor:
    """Truncated importance weight min(π_old / π_engine, cap) a token, without a graph.

    It corrects for tokens that were drawn from the engine's numbers (other kernels, other precision, older weights)
    and not from the trainer's. old_logp, engine_logp: [tokens], natural log. cap > 0.
    """
    if cap <= 0:
        raise ValueError(f"the cap of the importance weight must be positive, got {cap}")
    return torch.exp((old_logp - engine_logp).detach()).clamp(max=cap)


def kl_k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k1 = log π - log π_ref a token: unbiased for KL(π ‖ π_ref) on tokens drawn from π, may be negative."""
    return logp - ref_logp


def kl_k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k2 = (log π - log π_ref)² / 2 a token: biased, never negative; its gradient is that of the KL."""
    return 0.5 * (logp - ref_logp) ** 2


def kl_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k3 = r - 1 - log r with r = π_ref / π a token: unbiased, never negative, low variance."""
    log_ratio = (ref_logp - logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.exp(log_ratio) - 1.0 - log_ratio
