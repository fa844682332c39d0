"""The KL to a reference: which policy becomes the reference, that checkpoints keep it, and that it leaves the policy
unchanged.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from test_trainer import OPTIONS, same, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer
from troupe_policy.model.checkpoint import CheckpointError
from troupe_policy.trainer.reference import Reference
from troupe_policy.trainer.trainer import TrainerError

torch.set_num_threads(1)
KL = dataclasses.replace(OPTIONS, kl_coef=0.1, learning_rate=0.01)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5)


def test_the_reference_is_the_policy_before_the_first_step_until_a_reset_takes_another(model_dir) -> None:
    trainer, batch = Trainer(model_dir), random_sequences(6, seed=1)
    assert trainer.step(batch, KL)["klReference"] == 0.0
    assert trainer.step(batch, KL)["klReference"] > 1e-4
    trainer.reset(optimizer=False, reference=True)
    assert trainer.step(batch, KL)["klReference"] == 0.0


def test_a_strong_kl_keeps_the_policy_nearer_to_its_reference(model_dir) -> None:
    def distance(coefficient: float) -> float:
        trainer, batch = Trainer(model_dir), random_sequences(6, seed=1)
        options = dataclasses.replace(KL, kl_coef=coefficient, kl_estimator="k3-unbiased")
        return [trainer.step(batch, options)["klReference"] for _ in range(8)][-1]

    assert distance(5.0) < 0.5 * distance(1e-6)


def test_scoring_with_the_reference_leaves_every_bit_of_the_policy(model_dir) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, seed=1), KL)
    before = weights(trainer)
    with trainer.reference.in_place():
        assert not same(weights(trainer), before)
    assert same(weights(trainer), before)


def test_training_with_a_reference_goes_on_from_a_checkpoint_bit_for_bit(model_dir, tmp_path) -> None:
    straight, first = Trainer(model_dir), Trainer(model_dir)
    for seed in range(3):
        straight.step(random_sequences(6, seed), KL)
    first.step(random_sequences(6, 0), KL)
    first.save(tmp_path / "c1", True)
    first.step(random_sequences(6, 1), KL)
    first.save(tmp_path / "c2", True)
    # The reference did not change, so the second checkpoint links the first one's file.
    files = [tmp_path / name / "reference/__0_0.distcp" for name in ("c1", "c2")]
    assert files[0].stat().st_ino == files[1].stat().st_ino
    resumed = Trainer(model_dir)
    resumed.load(tmp_path / "c2")
    assert resumed.step(random_sequences(6, 2), KL)["klReference"] > 0
    assert same(weights(resumed), weights(straight))


def test_a_step_that_fails_does_not_fix_the_reference(model_dir) -> None:
    trainer = Trainer(model_dir)
    bad = [dataclasses.replace(s, advantage=float("nan")) for s in random_sequences(2, seed=1)]
    with pytest.raises(TrainerError, match="nan"):
        trainer.step(bad, KL)
    assert not trainer.reference.is_taken


@pytest.mark.parametrize(
    "change",
    [
        {"kl_estimator": "k4"}, {"objective": "ppo"}, {"loss_norm": "mean"},
    ],
)  # fmt: skip
def test_a_name_that_the_package_does_not_implement_is_refused(model_dir, change) -> None:
    with pytest.raises(TrainerError) as raised:
        Trainer(model_dir).step(random_sequences(2, seed=1), dataclasses.replace(OPTIONS, **change))
    assert raised.value.code == "trainer.bad_option"


@pytest.mark.parametrize(
    "change",
    [
        {"objective": "gspo", "loss_norm": "sequences"}, {"objective": "cispo", "clip_low": 1.0},
        {"correction": "icepop", "correction_low": 0.5, "correction_high": 5.0}, {"loss_norm": "constant", "constant_tokens": 64},
    ],
)  # fmt: skip
def test_micro_batches_change_no_loss_by_more_than_rounding(model_dir, change) -> None:
    losses = []
    for bound in (1, 90, 10_000):
        options = dataclasses.replace(KL, inner_steps=2, micro_batch_tokens=bound, **change)
        metrics = Trainer(model_dir).step(random_sequences(9, seed=2), options)
        losses.append((metrics["loss"], metrics["gradNorm"]))
    assert losses[1:] == [pytest.approx(losses[0], rel=1e-5)] * 2


def test_a_checkpoint_whose_reference_is_gone_is_refused(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(6, 0), KL)
    trainer.save(tmp_path / "c", True)
    (tmp_path / "c/reference/__0_0.distcp").unlink()
    with pytest.raises(CheckpointError, match=r"reference/__0_0\.distcp"):
        Trainer(model_dir).load(tmp_path / "c")


def test_a_reference_taken_after_another_checkpoint_was_loaded_is_written_and_not_the_earlier_one_linked(model_dir, tmp_path) -> None:
    trainer = Trainer(model_dir)
    trainer.save(tmp_path / "without", True)
    trainer.step(random_sequences(6, 0), KL)
    trainer.save(tmp_path / "c1", True)
    trainer.load(tmp_path / "without")
    assert not trainer.reference.is_taken
    trainer.step(random_sequences(6, 1), OPTIONS)
    trainer.step(random_sequences(6, 2), KL)
    trainer.save(tmp_path / "c2", True)
    other = Trainer(model_dir)
    other.load(tmp_path / "c2")
    assert same(other.reference.sharded(), trainer.reference.sharded())


def test_a_checkpoint_takes_the_reference_from_the_host_and_moves_nothing_to_the_device() -> None:
    weight = torch.randn(3, 4)
    parameters = {"w": torch.nn.Parameter(weight.clone())}
    reference = Reference(parameters)
    reference.take()
    parameters["w"] = torch.nn.Parameter(torch.empty(3, 4, device="meta"))  # stands for a device other than the host
    assert torch.equal(reference.sharded()["w"], weight)
