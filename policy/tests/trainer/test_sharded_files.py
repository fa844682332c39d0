"""Shards that change while a checkpoint is loaded are an error with a code, as those that were damaged before are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer, grpo_options
from troupe_policy.model.checkpoint import CheckpointError
from troupe_policy.trainer import saved_state
from troupe_policy.trainer.ranks.sharded_files import write_shards


@pytest.mark.parametrize("part", ["training", "reference"])
@pytest.mark.parametrize("kept_bytes", [None, 100])
def test_shards_that_go_or_are_cut_off_after_their_check_are_an_error_with_a_code(
    tmp_path: Path, monkeypatch, part: str, kept_bytes: int | None
) -> None:
    trainer = Trainer(tiny_model_dir(tmp_path / "m", seed=5))
    trainer.step(random_sequences(4, 0), grpo_options(kl_coef=0.1))
    trainer.save(tmp_path / "c", True)
    file, check = tmp_path / "c" / part / "__0_0.distcp", saved_state._check

    def then_damaged(*given) -> None:
        check(*given)
        content = file.read_bytes()
        file.unlink()
        if kept_bytes is not None:
            file.write_bytes(content[:kept_bytes])

    monkeypatch.setattr(saved_state, "_check", then_damaged)
    with pytest.raises(CheckpointError, match=f"{part} cannot be read") as raised:
        trainer.load(tmp_path / "c")
    assert raised.value.code == "trainer.checkpoint_corrupt"


def test_equal_shards_are_equal_files_wherever_and_whenever_they_are_written(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = (write_shards(tensors, tmp_path / name, None) for name in ("one", "two"))
    assert first == second
    assert set(first) == {"__0_0.distcp", ".metadata"}
