"""Packing, activation checkpointing and a last MLP on chosen tokens do not change loss and gradient."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from test_trainer import OPTIONS, gradients_of
from tiny_models import random_sequences, tiny_model, tiny_model_dir
from trainer_support import Trainer
from transformers.modeling_layers import GradientCheckpointingLayer
from troupe_policy.trainer.batch.last_mlp import LastMlp
from troupe_policy.trainer.batch.packed_attention import layout_of
from troupe_policy.trainer.policy import can_pack

torch.set_num_threads(1)

MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"model_type": "qwen3", "head_dim": 8, "tie_word_embeddings": True},
    "mistral with a window of 5": {"model_type": "mistral", "sliding_window": 5},
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "attn_pdrop": 0.0},
}


def padded(directory: Path) -> Trainer:
    """A trainer that pads rows instead of packing."""
    trainer = Trainer(directory)
    trainer.policy.packed = False
    trainer.model.set_attn_implementation("sdpa")
    return trainer


def alike(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        assert torch.allclose(other[name], gradient, atol=1e-6 + 1e-5 * gradient.abs().max().item()), name


@pytest.mark.parametrize("name", MODELS)
def test_packed_sequences_have_the_loss_and_gradient_of_padded_ones(name: str, tmp_path: Path) -> None:
    directory = tiny_model_dir(tmp_path / "m", seed=5, **MODELS[name])
    sequences = random_sequences(13, seed=4)
    trainer = Trainer(directory)
    assert trainer.policy.packed
    for bound in (1, 100, 10_000):
        options = dataclasses.replace(OPTIONS, micro_batch_tokens=bound)
        want, plain = gradients_of(padded(directory), sequences, options)
        got, metrics = gradients_of(trainer, sequences, options)
        assert metrics["loss"] == pytest.approx(plain["loss"], abs=1e-5)
        alike(want, got)


def test_a_micro_batch_of_packed_sequences_has_no_padding(tmp_path: Path) -> None:
    trainer = Trainer(tiny_model_dir(tmp_path / "m", seed=5))
    sequences = random_sequences(13, seed=4)
    seen: list[int] = []
    run = trainer.logprobs
    trainer.logprobs = lambda micro, *rest: seen.append(micro.ids.numel()) or run(micro, *rest)  # type: ignore[method-assign]
    trainer.step(sequences, dataclasses.replace(OPTIONS, micro_batch_tokens=128))
    assert sum(seen) == sum(len(s.tokens) for s in sequences)
    assert max(seen) <= 128


def test_a_model_that_attends_in_a_way_of_its_own_is_trained_on_padded_rows(tmp_path: Path) -> None:
    changes = {"model_type": "gemma2", "head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 5.0}
    assert not can_pack(tiny_model(**changes))
    trainer = Trainer(tiny_model_dir(tmp_path / "m", **changes))
    assert not trainer.policy.packed
    assert trainer.step(random_sequences(5, seed=1), OPTIONS)["trainedTokens"] > 0


def test_attention_computes_on_at_most_a_fourth_of_padding() -> None:
    for lengths in ([40, 39, 31, 30, 30, 12, 9, 1], [7] * 5, [100, 3], [1]):
        rows = layout_of(lengths, "cpu").rows
        assert sum(part.end - part.start for part in rows) == sum(lengths)
        assert sum(part.count for part in rows) == len(lengths)
        for part in rows:
            assert part.count * part.longest * 0.75 <= part.end - part.start


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_that_are_computed_again_change_no_gradient_and_are_not_kept(dtype: str, tmp_path: Path) -> None:
    directory = tiny_model_dir(tmp_path / "m", seed=5, num_hidden_layers=6)
    sequences = random_sequences(12, seed=6)
    results = []
    for checkpointing in (False, True):
        trainer = Trainer(directory, dtype=dtype, checkpointing=checkpointing)
        saved = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal saved
            saved += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            gradient, metrics = gradients_of(trainer, sequences, OPTIONS)
        results.append((gradient, metrics["loss"], saved))
    alike(results[0][0], results[1][0])
    assert results[1][1] == results[0][1]
    # The hook also sees the tensors that the recomputation saves, a layer at a time, so only the forward pass is
    # counted.
    trainer = Trainer(directory, dtype=dtype, checkpointing=True)
    kept: list[int] = []
    run = trainer.logprobs

    def forward(*given):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            return run(*given)

    trainer.logprobs = forward  # type: ignore[method-assign]
    gradients_of(trainer, sequences, OPTIONS)
    assert sum(kept) < 0.5 * results[0][2]


def test_bfloat16_products_leave_float32_weights_moments_and_gradients(tmp_path: Path) -> None:
    trainer = Trainer(tiny_model_dir(tmp_path / "m", seed=5), dtype="bfloat16")
    gradient, _ = gradients_of(trainer, random_sequences(6, seed=1), OPTIONS)
    trainer.step(random_sequences(6, seed=1), OPTIONS)
    assert {g.dtype for g in gradient.values()} == {torch.float32}
    assert {p.dtype for p in trainer.parameters.values()} == {torch.float32}
    assert {value.dtype for _, value in trainer.optimizer.named_state()} == {torch.float32}


@pytest.mark.parametrize("name", MODELS)
def test_the_last_mlp_computes_only_tokens_that_predict_a_trained_one_with_the_same_loss_and_gradient(
    name: str, tmp_path: Path
) -> None:
    directory = tiny_model_dir(tmp_path / "m", seed=5, **MODELS[name])
    sequences = random_sequences(13, seed=4)
    whole = Trainer(directory)
    whole.policy.last_mlp.remove()
    want, plain = gradients_of(whole, sequences, OPTIONS)
    trainer = Trainer(directory)
    layers = [module for module in trainer.model.modules() if isinstance(module, GradientCheckpointingLayer)]
    seen: list[int] = []
    layers[-1].mlp.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[:-1].numel()))
    got, metrics = gradients_of(trainer, sequences, OPTIONS)
    assert sum(seen) == metrics["trainedTokens"] < sum(len(s.tokens) for s in sequences)
    assert metrics["loss"] == pytest.approx(plain["loss"], abs=1e-5)
    alike(want, got)


def test_a_model_that_mixes_tokens_after_its_last_mlp_keeps_it_whole() -> None:
    class Mixed(torch.nn.Module):
        """Gives each token the sum of the normalised states up to it."""

        def __init__(self, norm: torch.nn.Module) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return self.norm(states).cumsum(-2)

    model = tiny_model()
    assert LastMlp(model).is_on
    mixed = tiny_model()
    mixed.base_model.norm = Mixed(mixed.base_model.norm)
    last = LastMlp(mixed)
    assert not last.is_on
    assert not mixed.base_model.layers[-1].mlp._forward_hooks
