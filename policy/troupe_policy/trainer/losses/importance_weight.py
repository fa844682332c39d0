"""Importance weights π_old / π_engine per token: TIS (truncated) and IcePop (masked).

In: log-probabilities of sampled tokens under the trainer's policy before the step (π_old) and under the engine's (π_engine);
the two differ by kernels, by precision and by the age of the weights. Out: one weight per token, without a graph.
Source: TIS: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"; IcePop: arXiv
2510.18855 §3.
"""

from __future__ import annotations

import torch
from torch import Tensor


def tis_weight(old_logp: Tensor, engine_logp: Tensor, cap: float) -> Tensor:
    """Truncated importance weight min(π_old / π_engine, cap).

    old_logp, engine_logp: [tokens], float32, natural log. Returns [tokens], float32. cap > 0, else ValueError.
    """
    if cap <= 0:
        raise ValueError(f"the cap of the importance weight is {cap}: it must be positive")
    return torch.exp((old_logp - engine_logp).detach()).clamp(max=cap)


def icepop_weight(old_logp: Tensor, engine_logp: Tensor, low: float, high: float) -> Tensor:
    """π_old / π_engine if it lies in [low, high], else 0: tokens on which trainer and engine disagree are not trained
    on.

    old_logp, engine_logp: [tokens], float32, natural log. Returns [tokens], float32. 0 <= low < high, else
    ValueError.
    """
    if not 0 <= low < high:
        raise ValueError(f"the band of IcePop is {low} to {high}: expected 0 <= low < high")
    ratio = torch.exp((old_logp - engine_logp).detach())
    return torch.where((ratio >= low) & (ratio <= high), ratio, torch.zeros_like(ratio))
