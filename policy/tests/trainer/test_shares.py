"""Shares of the ranks: everything once, balanced by the cost of attention too."""

from __future__ import annotations

import numpy as np
from tiny_models import tiny_model
from troupe_policy.trainer.ranks.shares import balanced_shares, cost_terms, sequence_costs


def loads(shares: list[list[int]], costs: list[int]) -> list[int]:
    return [sum(costs[at] for at in share) for share in shares]


def test_every_sequence_has_one_rank_and_costs_are_never_balanced_worse_than_by_tokens() -> None:
    draw = np.random.default_rng(0)
    better = 0
    for _ in range(300):
        ranks, count = int(draw.integers(1, 9)), int(draw.integers(0, 60))
        lengths = [int(n) for n in np.exp(draw.normal(6, 1.2, count)) + 1]
        terms = (int(draw.integers(1, 1 << 20)), int(draw.integers(0, 1 << 12)))
        costs = sequence_costs(lengths, terms)
        shares = balanced_shares(costs, lengths, ranks)
        assert len(shares) == ranks
        assert sorted(at for share in shares for at in share) == list(range(count))
        by_tokens = max(loads(balanced_shares(lengths, lengths, ranks), costs))
        assert max(loads(shares, costs)) <= by_tokens
        better += max(loads(shares, costs)) < by_tokens
    assert better > 100


def test_one_long_sequence_weighs_more_than_as_many_tokens_in_short_ones() -> None:
    lengths = [4000, *[100] * 40]
    costs = sequence_costs(lengths, (1000, 10))
    assert [len(share) for share in balanced_shares(costs, lengths, 2)] == [1, 40]
    lengths = [4000, 2000, *[100] * 20]
    costs = sequence_costs(lengths, (1000, 10))
    shares = balanced_shares(costs, lengths, 2)
    assert 0 in shares[0] and len(shares[0]) == 1


def test_the_terms_are_those_of_the_models_matrix_products() -> None:
    untied, tied = cost_terms(tiny_model()), cost_terms(tiny_model(tie_word_embeddings=True))
    # a layer of the tiny Llama: q and o 32 x 32, k and v 16 x 32, three 64 x 32; the head is 97 x 32
    assert untied == tied == (2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32) + 97 * 32, 32 * 2)
