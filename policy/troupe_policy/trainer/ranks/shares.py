"""Assigns sequences to ranks by the cost of computing them.

In: lengths in tokens, and the model's shape. Out: lists of indices, one for each rank.
Invariants: every index is in exactly one list. The largest cost of a rank is never above that of the greedy assignment
by tokens. The result depends only on the arguments, so every rank computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def cost_terms(model: nn.Module) -> tuple[int, int]:
    """Returns (a, b): a forward pass of the whole model over a sequence of n tokens makes about a·n + b·n²
    multiplications.

    Each token is multiplied with every weight matrix once; for a mixture of experts, that counts too much. Attention
    makes two products of heads · head_dim numbers for half of a sequence's pairs, the causal ones.
    """
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    embedding = model.get_input_embeddings().weight  # type: ignore[operator]
    is_tied = embedding is model.get_output_embeddings().weight  # type: ignore[operator]
    weights = sum(p.numel() for p in model.parameters() if p.dim() > 1) - (0 if is_tied else embedding.numel())
    heads = int(getattr(config, "num_attention_heads", 0) or 1)
    hidden = int(getattr(config, "hidden_size", 0) or 1024)
    width = heads * int(getattr(config, "head_dim", 0) or hidden // heads)
    return weights, width * int(getattr(config, "num_hidden_layers", 0) or 12)


def sequence_costs(lengths: Sequence[int], terms: tuple[int, int]) -> list[int]:
    """Cost of each sequence: a term in its length and one in the square, as `cost_terms` gives them."""
    linear, quadratic = terms
    return [n * linear + n * n * quadratic for n in lengths]


def balanced_shares(costs: Sequence[int], lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Indices of each rank, from a greedy assignment by cost and one by tokens: that with the smaller largest cost."""
    candidates = [_greedy(costs, ranks), _greedy(lengths, ranks)]
    return min(candidates, key=lambda shares: max(sum(costs[at] for at in share) for share in shares))


def _greedy(costs: Sequence[int], ranks: int) -> list[list[int]]:
    """Assigns the items in descending order of cost, each to the rank with the least cost so far."""
    parts: list[list[int]] = [[] for _ in range(ranks)]
    sums = [0] * ranks
    for index in sorted(range(len(costs)), key=lambda at: (-costs[at], at)):
        least = min(range(ranks), key=lambda rank: (sums[rank], rank))
        parts[least].append(index)
        sums[least] += costs[index]
    return parts
