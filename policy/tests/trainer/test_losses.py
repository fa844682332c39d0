"""The loss against plain float64 loops over tokens, written from the formulas and not from the code."""

from __future__ import annotations

import math

import pytest
import torch
from troupe_policy.trainer.losses.importance_weight import truncated_weight
from troupe_policy.trainer.losses.kl import KL_ESTIMATORS, kl_k1, kl_k2, kl_k3
from troupe_policy.trainer.losses.loss_norm import sequence_denominators
from troupe_policy.trainer.losses.policy_loss import policy_loss, sequence_mean


def batch(seed: int, sizes: list[int]) -> dict[str, list]:
    """Sequences of `sizes` tokens: current, old and engine log-probabilities, masks, advantages, groups of two."""
    torch.manual_seed(seed)
    return {
        "logp": [torch.randn(n, dtype=torch.float64) * 0.4 - 2 for n in sizes],
        "old": [torch.randn(n, dtype=torch.float64) * 0.4 - 2 for n in sizes],
        "engine": [torch.randn(n, dtype=torch.float64) * 0.4 - 2 for n in sizes],
        "mask": [(torch.rand(n) < 0.7).double() for n in sizes],
        "advantage": [torch.randn(()).double().item() for _ in sizes],
        "group": [at // 2 for at in range(len(sizes))],
    }


def reference(data: dict[str, list], norm: str, *, low: float, high: float, cap: float, dual: float) -> tuple[float, list]:
    """Computes loss and gradient by hand: for each token the objective and its slope, then the normalisation of the
    formula.
    """
    count = len(data["logp"])
    trained = [float(mask.sum()) for mask in data["mask"]]
    groups = sorted({g for g, n in zip(data["group"], trained, strict=True) if n > 0})
    loss, gradients = 0.0, []
    for i in range(count):
        if norm == "batch-tokens":
            share = 1.0 / sum(trained)
        elif norm == "group-tokens":
            own = sum(n for n, g in zip(trained, data["group"], strict=True) if g == data["group"][i])
            share = 1.0 / (own * len(groups)) if own else 0.0
        else:
            share = 1.0 / (trained[i] * sum(1 for n in trained if n > 0)) if trained[i] else 0.0
        slopes = []
        for t in range(len(data["logp"][i])):
            if not data["mask"][i][t]:
                slopes.append(0.0)
                continue
            a = data["advantage"][i]
            ratio = math.exp(data["logp"][i][t].item() - data["old"][i][t].item())
            clipped = min(max(ratio, 1 - low), 1 + high)
            objective, slope = (ratio * a, ratio * a) if ratio * a <= clipped * a else (clipped * a, 0.0)
            if dual and a < 0 and objective < dual * a:
                objective, slope = dual * a, 0.0
            w = min(math.exp(data["old"][i][t].item() - data["engine"][i][t].item()), cap) if cap else 1.0
            loss -= share * w * objective
            slopes.append(-share * w * slope)
        gradients.append(slopes)
    return loss, gradients


def ours(data: dict[str, list], norm: str, cuts: list[list[int]], *, low: float, high: float, cap: float, dual: float):
    """Computes loss and gradient by the function under test, summed over micro-batches of the given sequence indices.
    """
    leaves = [part.clone().requires_grad_(True) for part in data["logp"]]
    trained = [int(mask.sum()) for mask in data["mask"]]
    denominators = sequence_denominators(trained, data["group"], norm)
    loss = 0.0
    for cut in cuts:
        sizes = [len(data["logp"][i]) for i in cut]
        join = lambda name: torch.cat([data[name][i] for i in cut])  # noqa: E731
        spread = lambda values: torch.cat(  # noqa: E731
            [torch.full((n,), float(values[i]), dtype=torch.float64) for n, i in zip(sizes, cut, strict=True)]
        )
        result = policy_loss(
            torch.cat([leaves[i] for i in cut]),
            join("old"),
            spread(data["advantage"]),
            join("mask"),
            clip_low=low,
            clip_high=high,
            denominator=spread(denominators),
            weight=truncated_weight(join("old"), join("engine"), cap) if cap else None,
            dual_clip=dual,
        )
        result.loss.backward()
        loss += result.loss.item()
    return loss, [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves]


@pytest.mark.parametrize("norm", ["batch-tokens", "group-tokens", "sequences"])
@pytest.mark.parametrize(("cap", "dual"), [(0.0, 0.0), (2.0, 0.0), (1.1, 1.5)])
def test_loss_and_gradient_are_those_of_a_loop_over_tokens(norm: str, cap: float, dual: float) -> None:
    data = batch(3, [5, 9, 1, 14, 7, 3])
    data["mask"][2][:] = 0
    options = {"low": 0.2, "high": 0.28, "cap": cap, "dual": dual}
    want_loss, want_gradients = reference(data, norm, **options)
    loss, gradients = ours(data, norm, [list(range(6))], **options)
    assert loss == pytest.approx(want_loss, abs=1e-12)
    for got, want in zip(gradients, want_gradients, strict=True):
        assert torch.allclose(got, torch.tensor(want, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("norm", ["batch-tokens", "group-tokens", "sequences"])
def test_splitting_into_micro_batches_never_changes_loss_or_gradient(norm: str) -> None:
    data = batch(4, [5, 9, 2, 14, 7, 3, 30, 1])
    options = {"low": 0.2, "high": 0.28, "cap": 2.0, "dual": 0.0}
    whole_loss, whole = ours(data, norm, [list(range(8))], **options)
    for cuts in ([[0, 1, 2], [3, 4], [5, 6, 7]], [[i] for i in range(8)], [[7, 0], [6, 1, 5], [2, 3, 4]]):
        loss, parts = ours(data, norm, cuts, **options)
        assert loss == pytest.approx(whole_loss, abs=1e-12)
        assert all(torch.allclose(a, b, atol=1e-14) for a, b in zip(parts, whole, strict=True))


def test_a_group_of_long_answers_weighs_as_much_as_one_of_short_answers_under_group_tokens() -> None:
    assert sequence_denominators([10, 30, 2, 2], [0, 0, 1, 1], "group-tokens") == [80.0, 80.0, 8.0, 8.0]
    assert sequence_denominators([10, 30, 2, 2], [0, 0, 1, 1], "batch-tokens") == [44.0] * 4
    assert sequence_denominators([10, 30, 0, 2], [0, 0, 1, 1], "sequences") == [30.0, 90.0, 1.0, 6.0]
    with pytest.raises(ValueError, match="token-mean"):
        sequence_denominators([1], [0], "token-mean")


def test_the_clip_stops_the_gradient_above_1_28_for_gains_and_below_0_8_for_losses() -> None:
    def slope(ratio: float, advantage: float) -> float:
        logp = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
        zero = torch.zeros(1, dtype=torch.float64)
        result = policy_loss(logp, zero, torch.tensor([advantage]), torch.ones(1), denominator=1.0)
        result.loss.backward()
        assert result.clipped.item() == (logp.grad.item() == 0.0)
        return logp.grad.item()

    assert slope(1.27, 1.0) == pytest.approx(-1.27)
    assert slope(1.29, 1.0) == 0.0
    assert slope(0.79, -1.0) == 0.0
    assert slope(0.81, -1.0) == pytest.approx(0.81)
    assert slope(3.0, -1.0) == pytest.approx(3.0)
    assert slope(0.5, 1.0) == pytest.approx(-0.5)


def test_what_stands_at_a_token_that_is_not_trained_on_never_reaches_the_loss() -> None:
    logp = torch.tensor([-1.0, float("nan")], requires_grad=True)
    ones = torch.ones(2)
    result = policy_loss(logp, -ones, ones, torch.tensor([1.0, 0.0]), denominator=1.0)
    assert result.loss.item() == pytest.approx(-1.0)


def test_kl_estimators_average_to_the_kl_they_claim() -> None:
    torch.manual_seed(0)
    policy, other = torch.randn(6).double().log_softmax(0), torch.randn(6).double().log_softmax(0)
    exact = (policy.exp() * (policy - other)).sum().item()
    expected = lambda values: (policy.exp() * values).sum().item()  # noqa: E731
    assert expected(kl_k1(policy, other)) == pytest.approx(exact)
    assert expected(kl_k3(policy, other)) == pytest.approx(exact)
    assert (kl_k3(policy, other) >= 0).all() and (kl_k2(policy, other) >= 0).all()
    # the expected gradient of k2 is the gradient of the KL
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(6, dtype=torch.float64).log_softmax(0)
    logp = logits.log_softmax(0)
    (logp.exp() * (logp - ref)).sum().backward()
    want = logits.grad.clone()
    logits.grad = None
    logp = logits.log_softmax(0)
    (logp.exp().detach() * kl_k2(logp, ref)).sum().backward()
    assert torch.allclose(logits.grad, want, atol=1e-12)


def test_a_dual_clip_of_one_or_less_is_refused() -> None:
    one = torch.ones(1)
    with pytest.raises(ValueError, match="dual_clip"):
        policy_loss(one, one, one, one, denominator=1.0, dual_clip=0.5)


def packed(sizes: list[int], seed: int) -> dict[str, torch.Tensor]:
    """Sequences laid end to end, in float64; the last one has no trained token."""
    torch.manual_seed(seed)
    total = sum(sizes)
    sequence = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    mask = (torch.rand(total) < 0.7).double()
    mask[sequence == len(sizes) - 1] = 0
    return {
        "logp": torch.randn(total).double() * 0.3 - 2,
        "old": torch.randn(total).double() * 0.3 - 2,
        "mask": mask,
        "sequence": sequence,
        "advantage": torch.randn(len(sizes)).double()[sequence],
        "denominator": torch.tensor(
            sequence_denominators([int(mask[sequence == i].sum()) for i in range(len(sizes))], [0] * len(sizes), "sequences")
        ).double()[sequence],
    }


def test_gspo_weighs_every_token_of_a_sequence_by_the_geometric_mean_of_its_ratios() -> None:
    data = packed([5, 9, 3, 4], seed=1)
    logp = data["logp"].requires_grad_(True)
    given = (data["old"], data["advantage"], data["mask"])
    policy_loss(
        logp, *given, objective="gspo", denominator=data["denominator"], sequence=data["sequence"], clip_low=0.9, clip_high=9.0
    ).loss.backward()
    for i in range(3):
        own = (data["sequence"] == i) & (data["mask"] > 0)
        ratio = math.exp((logp - data["old"])[own].mean().item())
        # 2507.18071 eq. 10: the gradient of s·A is s·A/|y| at each of its tokens, here over 3 sequences
        want = -ratio * data["advantage"][own][0].item() / int(own.sum()) / 3
        assert logp.grad[own].tolist() == pytest.approx([want] * int(own.sum()), abs=1e-12)
    assert (logp.grad[data["mask"] == 0] == 0).all()


def test_a_sequence_whose_ratio_is_clipped_gives_gspo_no_gradient_at_any_of_its_tokens() -> None:
    data = packed([4, 4], seed=2)
    mask, advantage = torch.ones(8).double(), torch.tensor([1.0] * 4 + [-1.0] * 4).double()
    shift = torch.tensor([0.01, 0.0, 0.001, -0.002] * 2).double()
    logp = (data["old"] + shift).requires_grad_(True)
    result = policy_loss(
        logp, data["old"], advantage, mask, objective="gspo", denominator=8.0, sequence=data["sequence"],
        clip_low=3e-4, clip_high=4e-4,
    )  # fmt: skip
    result.loss.backward()
    # both tokens have the ratio exp(0.00225): it exceeds the upper clip of a gain, not that of a loss
    assert result.clipped.tolist() == [True] * 4 + [False] * 4
    assert (logp.grad[:4] == 0).all() and (logp.grad[4:] != 0).all()
    assert sequence_mean(shift, mask, data["sequence"]).tolist() == pytest.approx([0.00225] * 8)


def test_cispo_caps_the_weight_of_a_token_and_never_takes_its_gradient_away() -> None:
    old = torch.tensor([-2.0, -2.0, -2.0, -2.0], dtype=torch.float64)
    ratios = torch.tensor([0.1, 1.0, 3.0, 9.0], dtype=torch.float64)
    logp = (old + ratios.log()).requires_grad_(True)
    advantage = torch.tensor([1.0, -1.0, 1.0, -2.0], dtype=torch.float64)
    result = policy_loss(
        logp, old, advantage, torch.ones(4), objective="cispo", clip_low=1.0, clip_high=3.0, denominator=4.0
    )
    result.loss.backward()
    # -sg(min(r, 4))·A / 4
    assert logp.grad.tolist() == pytest.approx([-0.1 / 4, 1.0 / 4, -3.0 / 4, 4.0 * 2.0 / 4])
    assert result.clipped.tolist() == [False, False, False, True]


@pytest.mark.parametrize("objective", ["clip", "gspo", "cispo"])
def test_with_the_old_policy_as_it_is_every_objective_has_the_plain_policy_gradient(objective: str) -> None:
    data = packed([5, 9, 3, 4], seed=3)
    logp = data["old"].clone().requires_grad_(True)
    result = policy_loss(
        logp, data["old"], data["advantage"], data["mask"], objective=objective, denominator=7.0, sequence=data["sequence"]
    )
    result.loss.backward()
    plain = -(data["advantage"] * data["mask"]) / 7.0
    if objective == "gspo":  # each token's gradient is the mean of clip's gradients over the sequence
        plain = sequence_mean(plain, data["mask"], data["sequence"]) * (data["mask"] > 0)
    assert torch.allclose(logp.grad, plain, atol=1e-12)


def test_the_constant_norm_divides_by_the_budget_of_all_sequences_whatever_their_lengths() -> None:
    assert sequence_denominators([10, 30, 0, 2], [0, 0, 1, 1], "constant", 100) == [300.0] * 4
    with pytest.raises(ValueError, match="response"):
        sequence_denominators([1], [0], "constant")


def test_a_penalty_is_added_as_it_is_and_has_its_own_gradient() -> None:
    data = packed([5, 9, 4], seed=5)
    logp = data["logp"].requires_grad_(True)
    without = policy_loss(logp, data["old"], data["advantage"], data["mask"], denominator=3.0)
    penalty = 0.1 * kl_k3(logp, data["old"])
    with_kl = policy_loss(logp, data["old"], data["advantage"], data["mask"], denominator=3.0, penalty=penalty)
    want = without.loss + (penalty * data["mask"]).sum() / 3.0
    assert with_kl.loss.item() == pytest.approx(want.item(), abs=1e-12)


def test_the_mean_gradient_of_the_unbiased_k3_is_that_of_the_kl_on_tokens_of_an_older_policy() -> None:
    torch.manual_seed(3)
    old, ref = (torch.randn(6, dtype=torch.float64).log_softmax(0) for _ in range(2))
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    logp = logits.log_softmax(0)
    want = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits)[0]
    logp = logits.log_softmax(0)
    value = (old.exp() * KL_ESTIMATORS["k3-unbiased"](logp, ref, old)).sum()
    exact = (logp.exp() * (logp - ref)).sum()
    assert value.item() == pytest.approx(exact.item())
    assert torch.allclose(torch.autograd.grad(value, logits)[0], want, atol=1e-12)
