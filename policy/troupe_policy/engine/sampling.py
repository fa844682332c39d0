"""Samples one token per row: filtered softmax, inverse CDF, counter-based uniform numbers.

In: logits [rows, vocabulary]; per row a temperature, top_k, top_p, min_p and a uniform number.
Out: token ids [rows], the natural log of each token's probability under the distribution sampled from, and the
entropies of these distributions.
Invariant: a row's token depends on its own logits, options, seed and position, never on another row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """Finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), on uint64 [n]."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_A
    x = (x ^ (x >> np.uint64(27))) * _MIX_B
    return x ^ (x >> np.uint64(31))


def uniforms(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Uniform numbers in [0, 1), float32 [n], each a function of (seed, position) only.

    seeds: uint64 [n]; positions: int64 [n], the index of the token within its turn.
    The numbers have 23 bits, so that their product with a float32 total is always below the total.
    """
    with np.errstate(over="ignore"):
        state = _mix(seeds * _GOLDEN + _GOLDEN) + positions.astype(np.uint64) * _GOLDEN
        bits = _mix(_mix(state))
    return ((bits >> np.uint64(41)).astype(np.float32)) * np.float32(2.0**-23)


@dataclass(frozen=True)
class SamplingRows:
    """Sampling options per row: float32 [n], top_k int64 [n]. temperature 0 is greedy; top_k 0, top_p 1 and min_p 0
    filter nothing.
    """

    temperature: np.ndarray
    top_k: np.ndarray
    top_p: np.ndarray
    min_p: np.ndarray

    @property
    def filters(self) -> bool:
        return bool((self.top_k > 0).any() or (self.top_p < 1).any() or (self.min_p > 0).any())


def sample(logits: torch.Tensor, rows: SamplingRows, uniform: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples token ids int64 [n] and their logprobs float32 [n] (natural log), from logits [n, vocabulary] and uniform
    float32 [n].

    A greedy row's token is certain: its logprob is 0. A row with a NaN or +inf logit has the logprob NaN.
    """
    device = logits.device
    greedy = rows.temperature <= 0
    logits = _tempered(logits, rows)
    logp = torch.log_softmax(logits, dim=-1)
    cdf = logp.exp().cumsum_(-1)
    # The comparison is strict: a token of probability 0 does not raise the sum, so it is never chosen.
    target = torch.from_numpy(uniform).to(device)[:, None] * cdf[:, -1:]
    chosen = torch.searchsorted(cdf, target, right=True).clamp_(max=logits.shape[-1] - 1)
    chosen_logp = logp.gather(-1, chosen).squeeze(-1)
    chosen = chosen.squeeze(-1)
    if greedy.any():
        mask = torch.from_numpy(greedy).to(device)
        chosen = torch.where(mask, logits.argmax(-1), chosen)
        chosen_logp = torch.where(mask & chosen_logp.isfinite(), torch.zeros_like(chosen_logp), chosen_logp)
    return chosen, chosen_logp


def entropies(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """Entropies in nats, float32 [n], of the distributions that `sample` draws from; 0 for a greedy row, which is
    certain.
    """
    entropy = torch.special.entr(torch.softmax(_tempered(logits, rows), dim=-1)).sum(-1)
    greedy = torch.from_numpy(rows.temperature <= 0).to(logits.device)
    return entropy.masked_fill(greedy, 0.0)


def _tempered(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """Logits float32 [n, vocabulary] divided by each row's temperature; -inf for tokens that its filters exclude."""
    logits = logits.float()
    if (rows.temperature != 1).any():
        divisor = np.where(rows.temperature <= 0, 1.0, rows.temperature).astype(np.float32)
        logits = logits / torch.from_numpy(divisor).to(logits.device)[:, None]
    if rows.filters:
        logits = _filtered(logits, rows)
    return logits


def _filtered(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """Logits with -inf for the tokens that top_k, top_p and min_p exclude. The filters apply in this order, each to the
    tokens that the previous one left.
    """
    device, vocabulary = logits.device, logits.shape[-1]
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(vocabulary, device=device)
    top_k = torch.from_numpy(np.where(rows.top_k > 0, rows.top_k, vocabulary)).to(device)
    ordered = ordered.masked_fill(rank >= top_k[:, None], float("-inf"))
    probability = torch.softmax(ordered, dim=-1)
    # A token is kept while the tokens before it sum to less than top_p, so the first is always kept.
    before = probability.cumsum(-1) - probability
    top_p = torch.from_numpy(rows.top_p.astype(np.float32)).to(device)[:, None]
    # Rounding may raise the sum above 1, so top_p 1 is tested separately.
    dropped = (before >= top_p) & (top_p < 1)
    min_p = torch.from_numpy(rows.min_p.astype(np.float32)).to(device)
    dropped |= probability < min_p[:, None] * probability[:, :1]
    dropped[:, 0] = False
    ordered = ordered.masked_fill(dropped, float("-inf"))
    return torch.empty_like(logits).scatter_(-1, order, ordered)
