"""The writer of checkpoints: what it tells the other ranks, and what it holds while it writes."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model_dir
from trainer_support import Trainer, gated_writer
from troupe_policy.trainer import checkpoint_writer
from troupe_policy.trainer.checkpoint_writer import CheckpointWriter
from troupe_policy.trainer.ranks.ranks import Ranks


def test_every_rank_hears_that_the_published_weights_have_no_manifest(tmp_path: Path, monkeypatch) -> None:
    trainer = Trainer(tiny_model_dir(tmp_path / "m", seed=5))
    told: list[object] = []
    monkeypatch.setattr(trainer.ranks, "broadcast", lambda value: told.append(value) or value)
    with pytest.raises(OSError, match="manifest"):
        trainer.checkpoint(tmp_path / "c", tmp_path / "nowhere")
    ((is_open, said),) = told
    assert not is_open and "manifest" in said
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_tensors_that_only_the_checkpoint_needs_are_free_as_soon_as_they_are_copied(tmp_path: Path, monkeypatch) -> None:
    gate, writing = gated_writer(monkeypatch)
    tensor = torch.ones(3)
    held = weakref.ref(tensor)
    parts = {"part": {"x": tensor}}
    del tensor
    saving = CheckpointWriter(Ranks()).begin(tmp_path / "c", None, parts, lambda: {"weights": {}})
    assert writing.wait(60)
    gc.collect()
    assert held() is None
    gate.set()
    assert saving.result(60).size > 0


def test_a_rank_whose_part_of_a_checkpoint_fails_says_so_as_nobody_there_asks_for_its_result(tmp_path: Path, monkeypatch, caplog) -> None:
    trainer = Trainer(tiny_model_dir(tmp_path / "m", seed=5))
    (tmp_path / "temporary").mkdir()
    trainer.ranks.rank = 1
    monkeypatch.setattr(trainer.ranks, "broadcast", lambda _: (True, str(tmp_path / "temporary")))  # what rank 0 would say

    def full(*_given):
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint_writer, "write_shards", full)
    with caplog.at_level("WARNING"):
        trainer.checkpoint(tmp_path / "c", tmp_path / "weights")
        trainer.writer._thread.shutdown()  # returns after the callbacks of the checkpoint's end
    assert "rank 1" in caplog.text and "disk full" in caplog.text
