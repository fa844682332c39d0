"""Weights and moments of a sleeping trainer have no device memory, and come back bit for bit."""

from __future__ import annotations

import threading
from pathlib import Path

import torch
from test_trainer import OPTIONS, same, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer
from troupe_policy.trainer import checkpoint_writer
from troupe_policy.trainer.parked import Parked


def test_parked_tensors_have_no_memory_and_come_back_with_their_views():
    weight = torch.randn(16, 8)
    view, bits = weight[4:, :2], weight.clone()
    parked = Parked()
    assert parked.park([weight, weight.t()]) == 16 * 8 * 4
    assert weight.untyped_storage().nbytes() == 0 and weight.shape == (16, 8)
    assert parked.park([weight]) == 0
    parked.restore()
    assert torch.equal(weight, bits) and torch.equal(view, bits[4:, :2])
    assert view.data_ptr() == weight[4:, :2].data_ptr()


def test_a_trainer_that_slept_makes_the_steps_of_one_that_did_not(tmp_path: Path):
    directory = tiny_model_dir(tmp_path / "m", seed=5)
    awake, sleeper = Trainer(directory), Trainer(directory)
    for seed in (1, 2, 3):
        batch = random_sequences(6, seed=seed)
        sleeper.wake()
        assert sleeper.step(batch, OPTIONS)["loss"] == awake.step(batch, OPTIONS)["loss"]
        sleeper.sleep()
        moments = [value for kind, value in sleeper.optimizer.named_state() if not kind.startswith("step/")]
        assert moments and all(value.untyped_storage().nbytes() == 0 for value in moments)
    sleeper.wake()
    assert same(weights(sleeper), weights(awake))


def test_sleep_waits_until_the_checkpoint_has_its_copy_and_then_for_every_rank(tmp_path: Path, monkeypatch):
    directory = tiny_model_dir(tmp_path / "m", seed=5)
    trainer = Trainer(directory)
    trainer.save(tmp_path / "weights", False)
    before = weights(trainer)
    gate, copy = threading.Event(), checkpoint_writer.host_copy

    def slow(tensors):
        assert gate.wait(60)
        return copy(tensors)

    monkeypatch.setattr(checkpoint_writer, "host_copy", slow)
    saving = trainer.checkpoint(tmp_path / "c", tmp_path / "weights")
    asleep_at_agreement: list[bool] = []
    monkeypatch.setattr(trainer.ranks, "any", lambda flag: asleep_at_agreement.append(trainer.parked.is_parked) or flag)
    falling = threading.Thread(target=trainer.sleep)
    falling.start()
    falling.join(0.5)
    assert falling.is_alive() and not trainer.parked.is_parked
    gate.set()
    falling.join(60)
    saving.result(60)
    assert trainer.parked.is_parked and asleep_at_agreement == [True]
    other = Trainer(directory)
    other.load(tmp_path / "c")
    assert same(weights(other), before)
