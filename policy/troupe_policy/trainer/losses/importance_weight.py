"""Weights for tokens that were drawn from the engine's numbers and not from the trainer's: TIS and IcePop.

In: log-probabilities of sampled tokens under the trainer's policy before the step (π_old) and under the engine's. Out: a
weight a token, without a graph. They differ by kernels, by precision and by age of the weights.
Source: TIS: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"; IcePop: 2510.18855 §3.
"""

from __future__ import annotations

import torch
from torch import Tensor


def tis_weight(old_logp: Tensor, engine_logp: Tensor, cap: float) -> Tensor:
    """Truncated importance weight min(π_old / π_engine, cap) a token. [tokens], natural log; cap > 0."""
    if cap <= 0:
        raise ValueError(f"the cap of the importance weight must be positive, got {cap}")
    return torch.exp((old_logp - engine_logp).detach()).clamp(max=cap)


def icepop_weight(old_logp: Tensor, engine_logp: Tensor, low: float, high: float) -> Tensor:
    """π_old / π_engine where it lies in [low, high], else 0: tokens on which the two disagree are not trained on."""
    if not 0 <= low < high:
        raise ValueError(f"the band of IcePop must be 0 <= low < high, got {low} to {high}")
    ratio = torch.exp((old_logp - engine_logp).detach())
    return torch.where((ratio >= low) & (ratio <= high), ratio, torch.zeros_like(ratio))
