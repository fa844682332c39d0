"""Policy losses of packed tokens: clipped per token (GRPO, DAPO, Dr.GRPO), clipped per sequence (GSPO), and CISPO.

In: log-probabilities of trained tokens under the current and the old policy, advantages, the sequence of each token.
Out: a scalar to minimise, and the tokens whose gradient the clip removed.
Invariant: the denominators come from the whole optimizer batch before it is split (loss_norm.py), so the summed losses
of the micro-batches, and their gradient, do not depend on the cut. A micro-batch holds whole sequences.
Source: arXiv 2508.20722 eq. 6-7 (GRPO-RoC), 2402.03300 eq. 3 (GRPO), 2503.14476 eq. 8-12 (DAPO), 2503.20783 §3
(Dr.GRPO), 2507.18071 eq. 5-7 (GSPO), 2506.13585 eq. 4-5 (CISPO), 1912.09729 (dual clip).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Upper bound on |log ratio|: exp(±20) is far outside any clip range, and a broken ratio does not become inf before it
# is clipped.
MAX_LOG_RATIO = 20.0

# Terms that are maximised (r: the ratio π / π_old; A: the advantage). clip: min(r·A, clip(r)·A) per token; gspo: the
# same with one ratio r per sequence; cispo: clip(r)·A·log π per token, with no gradient through clip(r).
OBJECTIVES = ("clip", "gspo", "cispo")


@dataclass(frozen=True)
class PolicyLoss:
    """loss: float32 scalar with a graph, nats. clipped: [tokens] bool, true for tokens whose gradient the clip of the
    ratio removed (cispo: whose ratio was clipped); tokens that only the dual clip bounds are false.
    """

    loss: Tensor
    clipped: Tensor


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    objective: str = "clip",
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    denominator: float | Tensor,
    sequence: Tensor | None = None,
    weight: Tensor | None = None,
    dual_clip: float = 0.0,
    penalty: Tensor | None = None,
) -> PolicyLoss:
    """Loss of packed tokens, in nats: each token's term divided by `denominator`, then summed.

    logp, old_logp: [tokens], float32, natural log. mask: [tokens], float32, 0 or 1.
    advantage: [tokens], float32, the trajectory's advantage repeated.
    clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
    denominator: a number or [tokens], from `sequence_denominators` over the *whole* optimizer batch (all
    micro-batches and ranks), so that splitting the batch never changes the gradient.
    sequence: [tokens], int64 from 0, the index of each token's sequence; `gspo` needs it.
    weight: [tokens], float32, factor of the policy term, without a graph (importance_weight.py); None is 1.
    dual_clip: c > 1 bounds the loss of tokens with a negative advantage A at -c·A; 0 is off. Not for cispo.
    penalty: [tokens], float32, added to each token's loss: the coefficient times the KL to a reference.
    """
    log_ratio = (logp - old_logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if objective == "gspo":
        if sequence is None:
            raise ValueError("gspo needs `sequence`, the index of each token's sequence")
        log_ratio = sequence_mean(log_ratio, mask, sequence)
    ratio = torch.exp(log_ratio)
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    if objective == "cispo":
        if dual_clip > 0.0:
            raise ValueError("cispo has no dual clip, since its weights are bounded already: set dual_clip to 0")
        surrogate = bounded.detach() * advantage * logp
        clipped = (bounded != ratio) & (mask > 0)
    elif objective in ("clip", "gspo"):
        plain, limited = ratio * advantage, bounded * advantage
        surrogate = torch.minimum(plain, limited)
        clipped = (limited < plain) & (mask > 0)
        if dual_clip > 0.0:
            if dual_clip <= 1.0:
                raise ValueError(f"dual_clip is {dual_clip}: it must be above 1, or 0 for off")
            surrogate = torch.where(advantage < 0, torch.maximum(surrogate, dual_clip * advantage), surrogate)
    else:
        raise ValueError(f"objective is {objective!r}: expected one of {', '.join(OBJECTIVES)}")
    if weight is not None:
        surrogate = surrogate * weight
    if penalty is not None:
        surrogate = surrogate - penalty
    # `where` replaces a product with the mask: a NaN at an untrained token must not reach the sum.
    terms = torch.where(mask > 0, surrogate * mask, torch.zeros_like(surrogate))
    return PolicyLoss(loss=-(terms / denominator).sum(), clipped=clipped)


def sequence_mean(values: Tensor, mask: Tensor, sequence: Tensor) -> Tensor:
    """Mean of `values` over the tokens of a sequence with mask 1, repeated at each of its tokens; 0 for a sequence
    without such a token.

    values, mask: [tokens], float32. sequence: [tokens], int64 from 0. Returns [tokens].
    """
    count = int(sequence.max().item()) + 1 if sequence.numel() > 0 else 0
    kept = torch.where(mask > 0, values, torch.zeros_like(values))
    sums = torch.zeros(count, dtype=values.dtype, device=values.device).index_add(0, sequence, kept)
    counts = torch.zeros_like(sums).index_add(0, sequence, (mask > 0).to(values.dtype))
    return (sums / counts.clamp(min=1.0)).index_select(0, sequence)
