"""Corrections for tokens of another policy: weights from their formulas, and what a step does with each."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import random_sequences, tiny_model, tiny_model_dir
from trainer_support import Trainer, grpo_options, sampled_by
from troupe_policy.trainer.losses.importance_weight import (
    CORRECTIONS,
    geometric_mask,
    importance_weight,
    masked_weight,
    truncated_weight,
)
from troupe_policy.trainer.trainer import TrainerError, TrainSequence

torch.set_num_threads(1)
OPTIONS = grpo_options(micro_batch_tokens=128, max_grad_norm=0.0, correction="none", correction_high=0.0)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5)


def test_the_importance_weight_is_capped_and_has_no_gradient() -> None:
    old = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    weight = truncated_weight(old, torch.tensor([-1.0, -3.0, -0.5]), 2.0)
    assert weight.tolist() == pytest.approx([1.0, 2.0, math.exp(-0.5)])
    assert not weight.requires_grad
    with pytest.raises(ValueError, match="cap"):
        truncated_weight(old, old, 0.0)


def test_icepop_leaves_out_tokens_outside_its_band_and_weighs_the_others_by_their_ratio() -> None:
    old = torch.tensor([-1.0, -1.0, -1.0, -1.0], requires_grad=True)
    engine = old.detach() - torch.tensor([0.4, 0.51, 1.0, 5.1]).log()
    weight = masked_weight(old, engine, 0.5, 5.0)
    assert weight.tolist() == pytest.approx([0.0, 0.51, 1.0, 0.0], abs=1e-6)
    assert not weight.requires_grad
    with pytest.raises(ValueError, match="band"):
        masked_weight(old, engine, 2.0, 0.5)


def test_the_geometric_mask_leaves_out_whole_sequences_by_the_mean_of_their_log_ratios() -> None:
    sequence = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    mask = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    # log ratios: 0.4 and -0.4 cancel out; the third token is not trained on and does not count
    log_ratio = torch.tensor([0.4, -0.4, 9.0, 0.02, 0.01, -0.02, -0.02, 0.001])
    old = torch.full((8,), -2.0, requires_grad=True)
    weight = geometric_mask(old, old.detach() - log_ratio, mask, sequence, 0.99, 1.01)
    means = [math.exp(0.0), math.exp(0.015), math.exp(-0.013)]
    assert [0.99 <= mean <= 1.01 for mean in means] == [True, False, False]
    assert weight.tolist() == [1.0] * 3 + [0.0] * 5
    assert not weight.requires_grad
    # a single ratio far off the band does not leave out a long sequence: the mean is over its tokens
    long = torch.zeros(400)
    long[7] = math.log(3.0)
    every = torch.zeros(400, dtype=torch.int64)
    assert geometric_mask(long, torch.zeros(400), torch.ones(400), every, 0.99, 1.01).tolist() == [1.0] * 400
    with pytest.raises(ValueError, match="band"):
        geometric_mask(old, old, mask, sequence, 1.01, 0.99)


def test_each_name_has_its_weight_and_two_have_none() -> None:
    old, engine = torch.tensor([-1.0, -1.0]), torch.tensor([-1.0, -2.5])
    mask, sequence = torch.ones(2), torch.tensor([0, 1])
    weights = {
        name: importance_weight(name, 0.5, 2.0, old, engine, mask, sequence) for name in CORRECTIONS
    }
    assert {name: None if weight is None else weight.tolist() for name, weight in weights.items()} == {
        "none": None,
        "truncated": [1.0, 2.0],
        "masked": [1.0, 0.0],
        "icepop": [1.0, 0.0],
        "geometric-mask": [1.0, 0.0],
        "engine-logprobs": None,
    }
    with pytest.raises(ValueError, match="expected one of none, truncated"):
        importance_weight("tis", 0.5, 2.0, old, engine, mask, sequence)


def off_policy(noise: float) -> list[TrainSequence]:
    return sampled_by(tiny_model(seed=5), random_sequences(8, seed=3), noise=noise)


def log_ratios(sequences: list[TrainSequence]) -> list[np.ndarray]:
    """log π_old / π_engine of the trained tokens of each sequence, against the noise-free log-probabilities."""
    exact = off_policy(0.0)
    masks = [s.mask.astype(bool) & (np.arange(len(s.mask)) > 0) for s in sequences]
    return [(e.engine_logp - s.engine_logp)[m] for e, s, m in zip(exact, sequences, masks, strict=True)]


@pytest.mark.parametrize("name", ["masked", "icepop"])
def test_a_step_says_which_share_of_its_tokens_was_masked_and_the_mean_weight(model_dir, name) -> None:
    sequences = off_policy(0.4)
    ratios = np.exp(np.concatenate(log_ratios(sequences)))
    options = dataclasses.replace(OPTIONS, correction=name, correction_low=0.7, correction_high=1.5)
    metrics = Trainer(model_dir).step(sequences, options)
    inside = (ratios >= 0.7) & (ratios <= 1.5)
    assert 0.05 < 1 - inside.mean() < 0.95
    assert metrics["maskedShare" if name == "masked" else "icepopMasked"] == pytest.approx(1 - inside.mean())
    assert metrics["tisMean"] == pytest.approx(np.where(inside, ratios, 0).mean(), rel=1e-4)
    assert metrics["tisCapped"] == 0.0


def test_a_step_says_which_share_of_its_sequences_and_tokens_the_geometric_mask_left_out(model_dir) -> None:
    sequences = off_policy(0.4)
    means = np.array([np.exp(one.mean()) for one in log_ratios(sequences)])
    sizes = np.array([len(one) for one in log_ratios(sequences)])
    low, high = sorted(means)[2] * 0.999, sorted(means)[5] * 1.001  # two fall out on either side
    options = dataclasses.replace(OPTIONS, correction="geometric-mask", correction_low=low, correction_high=high)
    trainer = Trainer(model_dir)
    metrics = trainer.step(sequences, options)
    kept = (means >= low) & (means <= high)
    assert kept.sum() == 4
    assert metrics["maskedSequences"] == pytest.approx(0.5)
    assert metrics["maskedShare"] == pytest.approx(sizes[~kept].sum() / sizes.sum())
    assert metrics["tisMean"] == pytest.approx(sizes[kept].sum() / sizes.sum())
    # the update is that of the kept sequences alone, at the denominators of the whole batch
    alone = Trainer(model_dir)
    silenced = [s if one else dataclasses.replace(s, advantage=0.0) for s, one in zip(sequences, kept, strict=True)]
    want = alone.step(silenced, OPTIONS)
    assert metrics["gradNorm"] == pytest.approx(want["gradNorm"], rel=1e-5)
    for name, parameter in alone.parameters.items():
        assert torch.allclose(trainer.parameters[name], parameter, atol=1e-6), name


def test_with_the_engines_logprobs_as_the_old_policy_the_first_update_is_clipped_already(model_dir) -> None:
    sequences = off_policy(0.4)
    ratios = np.exp(np.concatenate(log_ratios(sequences)))
    advantages = np.repeat([s.advantage for s in sequences], [len(one) for one in log_ratios(sequences)])
    options = dataclasses.replace(OPTIONS, correction="engine-logprobs")
    metrics = Trainer(model_dir).step(sequences, options)
    clipped = ((ratios > 1.28) & (advantages > 0)) | ((ratios < 0.8) & (advantages < 0))
    assert metrics["clipFraction"] == pytest.approx(clipped.mean())
    terms = np.minimum(ratios * advantages, np.clip(ratios, 0.8, 1.28) * advantages)
    assert metrics["loss"] == pytest.approx(-terms.mean(), abs=1e-5)
    assert metrics["tisMean"] == 1.0
    assert metrics["klEngine"] == pytest.approx(-np.log(ratios).mean(), rel=1e-4)
    # on tokens of the policy itself it is the uncorrected step
    exact = [Trainer(model_dir).step(off_policy(0.0), dataclasses.replace(OPTIONS, correction=c)) for c in ("engine-logprobs", "none")]
    assert exact[0]["gradNorm"] == pytest.approx(exact[1]["gradNorm"], rel=1e-4)


def test_a_correction_that_the_package_does_not_know_is_refused(model_dir) -> None:
    for change in ({"correction": "tis"}, {"mini_batch_unit": "tokens"}):
        with pytest.raises(TrainerError, match="expected one of") as raised:
            Trainer(model_dir).step(random_sequences(2, seed=1), dataclasses.replace(OPTIONS, **change))
        assert raised.value.code == "trainer.bad_option"
