"""Chunked log-probabilities against the full logits, forward and backward, and on real transformers models."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny_model
from troupe_policy.model import logprobs
from troupe_policy.model.logprobs import Head, UnsupportedModel, check_head, chunked_logprobs, head_of, hidden_states_of


def plain(hidden, head, targets, temperature):
    logits = hidden @ head.weight.T
    if head.bias is not None:
        logits = logits + head.bias
    logits = logits * head.scale
    if head.softcap:
        logits = torch.tanh(logits / head.softcap) * head.softcap
    table = torch.log_softmax(logits / temperature, dim=-1)
    return table.gather(1, targets[:, None]).squeeze(1), -(table.exp() * table).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
@pytest.mark.parametrize(("bias", "scale", "softcap"), [(False, 1.0, 0.0), (True, 0.25, 0.0), (True, 1.5, 3.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunks_give_the_log_probabilities_gradients_and_entropies_of_the_full_logits(
    temperature, bias, scale, softcap, dtype, monkeypatch
) -> None:
    # sizes that give several chunks, the last one shorter
    monkeypatch.setattr(logprobs, "CHUNK", {"leastRows": 1, "cpuBytes": 4 * 17 * 51})
    torch.manual_seed(1)
    hidden = torch.randn(60, 12, dtype=dtype, requires_grad=True)
    weight = torch.randn(51, 12, dtype=dtype, requires_grad=True)
    offset = torch.randn(51, dtype=dtype, requires_grad=True) if bias else None
    targets = torch.randint(0, 51, (60,))
    coefficients = torch.randn(60, dtype=dtype)
    head = Head(weight, offset, scale, softcap)
    leaves = [leaf for leaf in (hidden, weight, offset) if leaf is not None]

    want, want_entropy = plain(hidden, head, targets, temperature)
    want_gradients = torch.autograd.grad((want * coefficients).sum(), leaves)
    got, entropy = chunked_logprobs(hidden, head, targets, temperature=temperature, with_entropy=True)
    gradients = torch.autograd.grad((got * coefficients).sum(), leaves)

    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    assert torch.allclose(got, want, atol=tolerance, rtol=tolerance)
    assert torch.allclose(entropy, want_entropy, atol=tolerance, rtol=tolerance)
    assert not entropy.requires_grad
    for mine, theirs in zip(gradients, want_gradients, strict=True):
        assert torch.allclose(mine, theirs, atol=tolerance * theirs.abs().max().item())
    without, none = chunked_logprobs(hidden, head, targets, temperature=temperature)
    assert none is None
    assert torch.allclose(without, got, atol=tolerance)


@pytest.mark.parametrize(
    ("vocabulary", "device", "rows"),
    [(151_936, "cuda", 1766), (49_152, "cuda", 5461), (151_936, "cpu", 256), (49_152, "cpu", 256), (500, "cpu", 8388)],
)
def test_a_chunk_is_as_long_as_the_dry_run_says(vocabulary, device, rows) -> None:
    # tests/cli/dryRun.test.ts holds the estimate against the same figures
    assert logprobs.chunk_rows(vocabulary, device) == rows


def test_no_tensor_of_tokens_times_vocabulary_is_saved_for_the_backward_pass() -> None:
    hidden = torch.randn(300, 8, requires_grad=True)
    weight = torch.randn(1000, 8, requires_grad=True)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        chunked_logprobs(hidden, Head(weight, None), torch.zeros(300, dtype=torch.long), with_entropy=True)
    assert saved and max(saved) <= max(hidden.numel(), weight.numel())


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": True},
        {"model_type": "qwen2", "tie_word_embeddings": False},
        {"model_type": "gemma2", "head_dim": 8, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 8},
        {"model_type": "cohere", "logit_scale": 0.25},
        {"model_type": "granite", "logits_scaling": 4.0},
        {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "attn_pdrop": 0.0},
    ],
)
def test_a_transformers_model_trains_on_the_same_numbers_as_through_its_own_logits(changes) -> None:
    model = tiny_model(**changes)
    head, states = head_of(model), hidden_states_of(model)
    check_head(model, head, states)
    torch.manual_seed(2)
    ids = torch.randint(0, 97, (3, 20))
    targets = ids[:, 1:].flatten()
    logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
    want = torch.log_softmax(logits / 0.8, -1).gather(1, targets[:, None]).squeeze(1)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    want_gradients = torch.autograd.grad(want.mean(), list(named.values()))
    got, _ = chunked_logprobs(states(ids)[:, :-1].flatten(0, 1), head, targets, temperature=0.8)
    assert torch.allclose(got, want, atol=1e-5)
    gradients = torch.autograd.grad(got.mean(), list(named.values()))
    for name, mine, theirs in zip(named, gradients, want_gradients, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5 * max(1.0, theirs.abs().max().item())), name


def test_a_model_whose_logits_are_something_else_is_refused() -> None:
    model = tiny_model()
    head, states = head_of(model), hidden_states_of(model)
    with pytest.raises(UnsupportedModel, match="differ from its head"):
        check_head(model, Head(head.weight, None, scale=0.5), states)


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature"):
        chunked_logprobs(torch.zeros(1, 2), Head(torch.zeros(3, 2), None), torch.zeros(1, dtype=torch.long), temperature=0)
