"""Estimators of KL(π ‖ π_ref) a token, on tokens drawn from π. In nats, each with a graph to `logp`.

Source: Schulman 2020, "Approximating KL divergence" (k1, k2, k3). As a loss term their gradients differ: on tokens that were
drawn from π itself the gradient of k2 is that of the KL, that of k3 is that of KL(π_ref ‖ π), and k1's is 0 in the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .policy_loss import MAX_LOG_RATIO


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


def kl_k3_unbiased(logp: Tensor, ref_logp: Tensor, old_logp: Tensor) -> Tensor:
    """(π / π_old)·k3 a token, for tokens drawn from π_old: unbiased, and its gradient is that of the KL.

    Source: DeepSeek-V3.2 (2512.02556) §3.1. It is what TRL computes unless told otherwise.
    """
    return torch.exp((logp - old_logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)) * kl_k3(logp, ref_logp)


# (log π, log π_ref, log π_old) → KL a token
KL_ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "k1": lambda logp, ref_logp, _: kl_k1(logp, ref_logp),
    "k2": lambda logp, ref_logp, _: kl_k2(logp, ref_logp),
    "k3": lambda logp, ref_logp, _: kl_k3(logp, ref_logp),
    "k3-unbiased": kl_k3_unbiased,
}
