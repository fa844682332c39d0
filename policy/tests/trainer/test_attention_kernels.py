"""Kernels for sequences of any length compute what attention over padded rows does; which one a trainer takes or refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from test_trainer import OPTIONS, gradients_of
from tiny_models import random_sequences, tiny_model, tiny_model_dir
from torch.nn.functional import scaled_dot_product_attention
from trainer_support import Trainer
from troupe_policy.trainer.batch import attention_kernels
from troupe_policy.trainer.batch.attention_kernels import ATTENTIONS, attend_flex, attend_varlen, chosen_kernel
from troupe_policy.trainer.batch.micro_batch import Batch
from troupe_policy.trainer.batch.packed_attention import UnsupportedAttention, attend, layout_of
from troupe_policy.trainer.policy import Policy
from troupe_policy.trainer.trainer import TrainerError

torch.set_num_threads(1)
LENGTHS = [37, 20, 19, 3, 1]


def pack(kind: torch.dtype = torch.float32, grad: bool = False) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    shape = lambda heads: (1, heads, sum(LENGTHS), 16)  # noqa: E731
    return [torch.randn(shape(heads), generator=draw).to(kind).requires_grad_(grad) for heads in (4, 2, 2)]


def reference_varlen(q, k, v, ends, ends_k, longest, longest_k, *, scale, window_size, enable_gqa):
    """torch.nn.attention.varlen's contract on a CPU: q [tokens, heads, dim], sequences between `ends`."""
    assert ends.dtype == torch.int32 and ends.tolist() == ends_k.tolist() and longest == longest_k == ends.diff().max()
    assert q.dtype == k.dtype == v.dtype == torch.bfloat16 and enable_gqa and ends[-1] == len(q)
    parts = []
    for start, end in zip(ends.tolist(), ends.tolist()[1:], strict=False):
        at = torch.arange(end - start)
        seen = at[:, None] >= at[None]
        if window_size[0] >= 0:
            seen &= at[:, None] - at[None] <= window_size[0]
        rows = [tensor[start:end].transpose(0, 1)[None] for tensor in (q, k, v)]
        parts.append(scaled_dot_product_attention(*rows, attn_mask=seen, scale=scale, enable_gqa=True)[0].transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("window", [None, 5])
def test_flex_computes_the_attention_of_padded_rows(window) -> None:
    layout_of(LENGTHS, "cpu").activate()
    options = {} if window is None else {"sliding_window": window}
    want, _ = attend(None, *pack(), None, scaling=0.3, **options)
    got, _ = attend_flex(None, *pack(), None, scaling=0.3, **options)
    assert got.shape == want.shape and torch.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("window", [None, 5])
def test_varlen_is_asked_for_the_attention_of_padded_rows_and_its_gradient_comes_back(window, monkeypatch) -> None:
    monkeypatch.setattr(attention_kernels.varlen, "varlen_attn", reference_varlen)
    layout_of(LENGTHS, "cpu").activate()
    options = {} if window is None else {"sliding_window": window}
    plain, given = pack(grad=True), pack(grad=True)
    want, _ = attend(None, *plain, None, scaling=0.3, **options)
    got, _ = attend_varlen(None, *given, None, scaling=0.3, **options)
    assert got.shape == want.shape and torch.allclose(got.float(), want, atol=0.05)
    want.square().sum().backward()
    got.float().square().sum().backward()
    for one, other in zip(plain, given, strict=True):
        assert torch.allclose(one.grad, other.grad, atol=0.05 * one.grad.abs().max().item())


def test_a_model_with_flex_has_the_log_probabilities_of_one_with_sdpa(tmp_path: Path) -> None:
    trainer = Trainer(tiny_model_dir(tmp_path / "m", seed=5))
    assert trainer.policy.attention == "sdpa"
    rows = sorted(random_sequences(5, seed=2), key=lambda s: -len(s.tokens))
    masks = [trainer.trained_mask(s.trajectory, s.tokens, s.mask) for s in rows]
    batch = Batch([s.tokens for s in rows], masks, [1.0] * 5, None, [1.0] * 5)
    (micro,) = trainer.micro_batches(batch, 10_000)
    with torch.no_grad():
        want, _ = trainer.logprobs(micro, 1.0, False)
        trainer.model.set_attn_implementation(ATTENTIONS["flex"])
        got, _ = trainer.logprobs(micro, 1.0, False)
    assert torch.allclose(got, want, atol=1e-5)


def test_soft_capping_is_refused_by_every_kernel() -> None:
    layout_of(LENGTHS, "cpu").activate()
    for kernel in (attend, attend_varlen, attend_flex):
        with pytest.raises(UnsupportedAttention):
            kernel(None, *pack(), None, softcap=1.0)


def test_bfloat16_on_cuda_takes_varlen_and_a_kernel_that_cannot_train_here_is_refused() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert chosen_kernel("auto", cuda, True) == "varlen"
    assert {chosen_kernel("auto", *where) for where in ((cuda, False), (cpu, True), (cpu, False))} == {"sdpa"}
    assert chosen_kernel("flex", cuda, False) == "flex" and chosen_kernel("varlen", cuda, True) == "varlen"
    for asked, device, half in (("varlen", cuda, False), ("varlen", cpu, True), ("flex", cpu, False), ("fast", cuda, True)):
        with pytest.raises(ValueError, match=r"no kernel 'fast'|set auto or sdpa"):
            chosen_kernel(asked, device, half)


def test_a_trainer_says_which_option_it_refuses(tmp_path: Path) -> None:
    directory = tiny_model_dir(tmp_path / "m", seed=5)
    for changes, field in (({"attention": "flex"}, "train.attention"), ({"compiled": "model"}, "train.compile")):
        with pytest.raises(TrainerError, match=field) as raised:
            Trainer(directory, **changes)
        assert raised.value.code == "trainer.bad_option"


def test_a_kernel_is_taken_that_has_the_attention_and_the_gradient_of_sdpa(monkeypatch) -> None:
    monkeypatch.setattr(attention_kernels.varlen, "varlen_attn", reference_varlen)
    assert Policy(tiny_model(), attention="varlen", named=True).attention == "varlen"
    # without a mask, a token sees what comes after it
    monkeypatch.setattr(attention_kernels.varlen, "varlen_attn", lambda q, k, v, *_, **__: v.repeat_interleave(2, 1))
    assert Policy(tiny_model(), attention="varlen").attention == "sdpa"
    # a kernel without a backward pass cannot train
    assert Policy(tiny_model(), attention="flex").attention == "sdpa"


def test_a_kernel_that_does_not_work_with_a_model_is_replaced_unless_it_was_named(monkeypatch) -> None:
    def broken(*_given: object, **_options: object) -> torch.Tensor:
        raise RuntimeError("FlashAttention supports head dimensions of at most 256")

    monkeypatch.setattr(attention_kernels.varlen, "varlen_attn", broken)
    assert Policy(tiny_model(), attention="varlen").attention == "sdpa"
    with pytest.raises(ValueError, match="varlen does not compute"):
        Policy(tiny_model(), attention="varlen", named=True)


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param(
            "inductor",
            marks=pytest.mark.skipif("TROUPE_COMPILE" not in os.environ, reason="TROUPE_COMPILE=1 compiles with g++, too: 25 s of a core"),
        ),
    ],
)
def test_compiled_layers_have_the_loss_and_gradient_of_uncompiled_ones(tmp_path: Path, monkeypatch, backend: str) -> None:
    """With activation checkpointing, so that the compiled layer also runs inside of it; packs of two sizes, compiled once."""
    compiling = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: compiling(function, backend=backend, **options))
    counted = torch._dynamo.utils.counters["stats"]
    counted.clear()
    directory = tiny_model_dir(tmp_path / "m", seed=5, num_hidden_layers=1)
    plain, compiled = Trainer(directory), Trainer(directory, compiled="layer", checkpointing=True)
    graphs = []
    for count in (9, 5):
        sequences = random_sequences(count, seed=4)
        want, metrics = gradients_of(plain, sequences, OPTIONS)
        got, other = gradients_of(compiled, sequences, OPTIONS)
        assert other["loss"] == pytest.approx(metrics["loss"], abs=1e-5)
        for name, gradient in want.items():
            assert torch.allclose(got[name], gradient, atol=1e-6 + 1e-4 * gradient.abs().max().item()), name
        graphs.append(counted["unique_graphs"])
    assert 0 < graphs[0] == graphs[1]
