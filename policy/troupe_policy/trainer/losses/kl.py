"""Estimators of KL(π ‖ π_ref) per token, on tokens drawn from π (`kl_k3_unbiased`: from π_old).

In: log-probabilities under π (`logp`), the reference and π_old: [tokens], float32, natural log. Out: [tokens],
float32, nats, with a graph to `logp`. As loss terms their gradients differ. On tokens drawn from π itself, k2 has the
gradient of KL(π ‖ π_ref), k3 has that of KL(π_ref ‖ π), and the gradient of k1 is 0 in the mean.
Source: Schulman 2020, "Approximating KL divergence" (k1, k2, k3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .policy_loss import MAX_LOG_RATIO


def kl_k1(logp: Tensor, reference_logp: Tensor) -> Tensor:
    """k1 = log π - log π_ref: unbiased for KL(π ‖ π_ref) on tokens drawn from π; may be negative."""
    return logp - reference_logp


def kl_k2(logp: Tensor, reference_logp: Tensor) -> Tensor:
    """k2 = (log π - log π_ref)² / 2: biased, never negative; has the gradient of KL(π ‖ π_ref)."""
    return 0.5 * (logp - reference_logp) ** 2


def kl_k3(logp: Tensor, reference_logp: Tensor) -> Tensor:
    """k3 = r - 1 - log r with r = π_ref / π: unbiased, never negative, low variance."""
    log_ratio = (reference_logp - logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.exp(log_ratio) - 1.0 - log_ratio


def kl_k3_unbiased(logp: Tensor, reference_logp: Tensor, old_logp: Tensor) -> Tensor:
    """(π / π_old)·k3, for tokens drawn from π_old: unbiased, with the gradient of KL(π ‖ π_ref).

    Source: DeepSeek-V3.2 (arXiv 2512.02556) §3.1. TRL's default.
    """
    return torch.exp((logp - old_logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)) * kl_k3(logp, reference_logp)


# Estimators by name; each maps (log π, log π_ref, log π_old) to the KL per token.
KL_ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "k1": lambda logp, reference_logp, _: kl_k1(logp, reference_logp),
    "k2": lambda logp, reference_logp, _: kl_k2(logp, reference_logp),
    "k3": lambda logp, reference_logp, _: kl_k3(logp, reference_logp),
    "k3-unbiased": kl_k3_unbiased,
}
