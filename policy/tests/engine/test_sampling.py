"""Sampling: frequencies, filters, and random numbers that depend only on seed and position."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from troupe_policy.engine.sampling import SamplingRows, entropies, sample, uniforms


def options(n: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> SamplingRows:
    return SamplingRows(
        np.full(n, temperature, np.float32),
        np.full(n, top_k),
        np.full(n, top_p, np.float32),
        np.full(n, min_p, np.float32),
    )


def numbers(n: int) -> np.ndarray:
    return uniforms(np.arange(n).astype(np.uint64), np.full(n, 3))


def test_uniform_numbers_are_uniform_and_a_function_of_seed_and_position() -> None:
    seeds, positions = np.repeat(np.arange(300), 300).astype(np.uint64), np.tile(np.arange(300), 300)
    drawn = uniforms(seeds, positions)
    assert drawn.min() >= 0 and drawn.max() < 1
    counts = np.histogram(drawn, 50, (0, 1))[0]
    expected = len(drawn) / 50
    # chi squared with 49 degrees of freedom exceeds 100 in one of 40,000 tables
    assert ((counts - expected) ** 2 / expected).sum() < 100
    assert uniforms(seeds[777:778], positions[777:778])[0] == drawn[777]
    grid = drawn.reshape(300, 300)
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.02


def test_tokens_come_as_often_as_their_probability_and_with_its_logarithm() -> None:
    n = 40_000
    logits = torch.randn(12, generator=torch.Generator().manual_seed(0)) * 2
    chosen, logp = sample(logits.expand(n, 12), options(n, temperature=0.8), numbers(n))
    expected = torch.softmax(logits / 0.8, -1)
    frequency = torch.bincount(chosen, minlength=12) / n
    assert (frequency - expected).abs().max() < 0.01
    torch.testing.assert_close(logp, expected.log()[chosen], atol=1e-5, rtol=0)


def test_entropies_are_of_what_temperature_and_filters_leave() -> None:
    probability = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
    logits = probability.log().expand(3, 5)
    whole = -(probability * probability.log()).sum().item()
    assert entropies(logits, options(3)).tolist() == pytest.approx([whole] * 3, abs=1e-6)
    two = probability[:2] / probability[:2].sum()
    left = -(two * two.log()).sum().item()
    assert entropies(logits, options(3, top_k=2)).tolist() == pytest.approx([left] * 3, abs=1e-6)
    flat = torch.softmax(probability.log() / 2, -1)
    assert entropies(logits, options(3, temperature=2.0))[0].item() == pytest.approx(-(flat * flat.log()).sum().item())
    assert entropies(logits, options(3, temperature=0.0)).tolist() == [0, 0, 0]


def test_filters_leave_what_they_say_and_the_logprob_is_of_what_is_left() -> None:
    probability = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
    n = 20_000
    for given, left in (
        ({"top_k": 2}, [0, 1]),
        ({"top_p": 0.65}, [0, 1]),
        ({"top_p": 0.72}, [0, 1, 2]),
        ({"min_p": 0.3}, [0, 1, 2]),
        ({"top_k": 4, "top_p": 0.8}, [0, 1, 2]),
        ({"top_p": 1e-6}, [0]),
    ):
        order = torch.tensor([3, 0, 4, 1, 2])
        chosen, logp = sample(probability[order].log().expand(n, 5), options(n, **given), numbers(n))
        chosen = order[chosen]
        assert sorted(set(chosen.tolist())) == left, given
        kept = probability[left] / probability[left].sum()
        for token, expected in zip(left, kept, strict=True):
            mine = chosen == token
            assert abs(mine.float().mean().item() - expected.item()) < 0.015
            torch.testing.assert_close(logp[mine], expected.log().expand(int(mine.sum())), atol=1e-5, rtol=0)


def test_a_row_is_drawn_alike_whatever_the_other_rows_ask() -> None:
    logits = torch.randn(8, 50, generator=torch.Generator().manual_seed(1))
    plain, plain_logp = sample(logits, options(8), numbers(8))
    mixed = SamplingRows(
        np.array([1, 0, 0.5, 1, 1, 1, 1, 1], np.float32),
        np.array([0, 0, 0, 5, 0, 0, 0, 0]),
        np.array([1, 1, 1, 1, 0.5, 1, 1, 1], np.float32),
        np.array([0, 0, 0, 0, 0, 0.2, 0, 0], np.float32),
    )
    other, other_logp = sample(logits, mixed, numbers(8))
    for row in (0, 6, 7):
        assert plain[row] == other[row] and plain_logp[row] == other_logp[row]
    assert other[1] == logits[1].argmax() and other_logp[1] == 0


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = torch.full((4000, 64), float("-inf"))
    logits[:, 20:23] = 0.0
    chosen, _ = sample(logits, options(4000), np.concatenate([[0.0], numbers(3998), [1 - 2.0**-23]]).astype(np.float32))
    assert set(chosen.tolist()) == {20, 21, 22}
