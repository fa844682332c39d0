"""Weights that are read for a model whose head is tied to its embedding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model, tiny_model_dir

from troupe_policy.model.checkpoint import CheckpointError, read_weights


def test_an_untied_head_does_not_fit_a_tied_model(tmp_path: Path) -> None:
    tiny_model_dir(tmp_path, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match="lm_head.weight are one tensor in this model") as raised:
        read_weights(tmp_path, tiny_model(tie_word_embeddings=True))
    assert raised.value.code == "trainer.shape_mismatch"


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_fits_a_tied_model_and_an_untied_one(tmp_path: Path, tied: bool) -> None:
    tiny_model_dir(tmp_path, tie_word_embeddings=True)
    read = read_weights(tmp_path, tiny_model(tie_word_embeddings=tied))
    assert torch.equal(read["lm_head.weight"], read["model.embed_tokens.weight"])
