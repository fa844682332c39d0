"""Mini-batches of a step: how a batch is cut, and that each gets one update with π_old from before the first."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from tiny_models import random_sequences, tiny_model, tiny_model_dir
from trainer_support import Trainer, grpo_options, sampled_by
from troupe_policy.trainer.batch.mini_batch import mini_batches
from troupe_policy.trainer.trainer import TrainerError

torch.set_num_threads(1)
OPTIONS = grpo_options(learning_rate=0.01, micro_batch_tokens=90, max_grad_norm=0.0, correction="none")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5)


def test_mini_batches_hold_every_sequence_once_and_groups_whole() -> None:
    groups = [at // 4 for at in range(40)]
    for unit in ("groups", "sequences"):
        cut = mini_batches(groups, 3, unit, "7/g0/0")
        assert sorted(at for part in cut for at in part) == list(range(40))
        assert all(part == sorted(part) for part in cut)
        assert cut == mini_batches(groups, 3, unit, "7/g0/0")
        assert cut != mini_batches(groups, 3, unit, "8/g0/0")
    assert sorted(len(part) for part in mini_batches(groups, 3, "groups", "x")) == [12, 12, 16]
    assert sorted(len(part) for part in mini_batches(groups, 3, "sequences", "x")) == [13, 13, 14]
    owners = [{groups[at] for at in part} for part in mini_batches(groups, 3, "groups", "x")]
    assert sum(len(one) for one in owners) == 10
    assert mini_batches([0, 0, 5], 9, "groups", "x") in ([[0, 1], [2]], [[2], [0, 1]])
    assert mini_batches(groups, 1, "groups", "x") == [list(range(40))]
    with pytest.raises(ValueError, match="groups, sequences"):
        mini_batches(groups, 2, "tokens", "x")


def test_each_mini_batch_gets_an_update_of_its_own_with_the_old_policy_of_the_step(model_dir) -> None:
    """Rebuilds a step of 3 mini-batches from steps of one each; the engine's log-probabilities carry π_old to them."""
    sequences = random_sequences(12, seed=4)
    options = dataclasses.replace(OPTIONS, mini_batches=3, mini_batch_seed=5)
    trainer = Trainer(model_dir)
    metrics = trainer.step(sequences, options)
    assert metrics["updates"] == 3.0 and trainer.optimizer.updates == 3
    assert metrics["clipFraction"] > 0.0  # from the second update on, the policy is no longer π_old

    start, other = Trainer(model_dir), Trainer(model_dir)
    exact = sampled_by(tiny_model(seed=5), sequences)
    losses = []
    for part in mini_batches([s.group for s in sequences], 3, "groups", "5/g0/0"):
        one = dataclasses.replace(OPTIONS, correction="engine-logprobs")
        losses.append(other.step([exact[at] for at in part], one)["loss"])
    assert metrics["loss"] == pytest.approx(sum(losses) / 3, abs=1e-5)
    for name, parameter in other.parameters.items():
        assert torch.allclose(trainer.parameters[name], parameter, atol=1e-4), name
    moved = max((trainer.parameters[name] - p).abs().max().item() for name, p in start.parameters.items())
    assert moved > 0.02  # three updates of about the learning rate each


def test_inner_steps_are_passes_over_all_mini_batches(model_dir) -> None:
    trainer = Trainer(model_dir)
    metrics = trainer.step(random_sequences(12, seed=4), dataclasses.replace(OPTIONS, mini_batches=3, inner_steps=2))
    assert metrics["updates"] == 6.0 and trainer.optimizer.updates == 6
    once = Trainer(model_dir).step(random_sequences(12, seed=4), OPTIONS)
    # counted in the first pass, against the policy before the first update
    assert metrics["klEngine"] == pytest.approx(once["klEngine"], rel=1e-5)
    assert "updates" not in once


def test_two_trainers_cut_and_train_alike_and_another_seed_gives_other_weights(model_dir) -> None:
    ends = []
    for seed in (1, 1, 2):
        trainer = Trainer(model_dir)
        options = dataclasses.replace(OPTIONS, mini_batches=4, mini_batch_unit="sequences", mini_batch_seed=seed)
        metrics = trainer.step(random_sequences(10, seed=6), options)
        ends.append(({name: p.detach().clone() for name, p in trainer.parameters.items()}, metrics["loss"]))
    same = lambda one, other: all(torch.equal(one[name], other[name]) for name in one)  # noqa: E731
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]
    assert not same(ends[0][0], ends[2][0])


def test_a_failure_in_a_later_mini_batch_leaves_everything_as_it_was(model_dir) -> None:
    trainer = Trainer(model_dir)
    before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    update, calls = trainer.update, []

    def fail_last(loss: float, rate: float, norm: float) -> float:
        calls.append(loss)
        return update(float("nan") if len(calls) == 3 else loss, rate, norm)

    trainer.update = fail_last  # type: ignore[method-assign]
    with pytest.raises(TrainerError) as raised:
        trainer.step(random_sequences(12, seed=7), dataclasses.replace(OPTIONS, mini_batches=3))
    assert raised.value.code == "trainer.not_finite" and len(calls) == 3
    assert all(torch.equal(trainer.parameters[name], p) for name, p in before.items())
    assert trainer.optimizer.updates == 0
