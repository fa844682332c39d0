"""Checks that a device computes what it should: head, bfloat16 and TF32, packed attention and its kernels, compiled layers,
engine against trainer.

In: a model directory, a device. Out: figures with bounds. Each reference is a simpler computation: dense logits, exact
float32 products, each sequence alone, torch's own attention, uncompiled layers, a forward pass without a KV cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from figures import Figure
from models import sequences, vocabulary_of
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from troupe_policy.engine.engine import Engine
from troupe_policy.engine.loaded_model import load_model
from troupe_policy.engine.options import EngineOptions
from troupe_policy.engine.requests import Event, Finished, Request
from troupe_policy.model.logprobs import Head, chunked_logprobs
from troupe_policy.trainer.batch.attention_kernels import ATTENTIONS
from troupe_policy.trainer.batch.micro_batch import Batch, MicroBatch
from troupe_policy.trainer.trainer import Trainer

LENGTHS = [200, 180, 64, 17]


def head(model: Path, device: torch.device) -> Iterator[Figure]:
    """The chunked head against dense logits, float32: log-probabilities and the gradients of both inputs."""
    vocabulary, width, rows = vocabulary_of(model), 256, 4096
    torch.manual_seed(2)
    torch.set_float32_matmul_precision("highest")
    hidden = torch.randn(rows, width, device=device)
    weight = torch.randn(vocabulary, width, device=device) / width**0.5
    targets = torch.randint(vocabulary, (rows,), device=device)
    slope = torch.randn(rows, device=device)

    def graded(logprobs) -> tuple[Tensor, Tensor, Tensor]:
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        logp = logprobs(h, w)
        (logp * slope).sum().backward()
        return logp.detach(), h.grad, w.grad

    dense = graded(lambda h, w: torch.log_softmax(h @ w.t(), -1).gather(1, targets[:, None])[:, 0])
    ours = graded(lambda h, w: chunked_logprobs(h, Head(w, None), targets)[0])
    for name, a, b in zip(("log-probabilities", "gradient of hidden states", "gradient of the weight"), ours, dense, strict=True):
        yield Figure(f"{name}: largest difference, relative", relative(a, b), most=2e-3 if device.type == "cuda" else 1e-4)


def bfloat16(model: Path, device: torch.device) -> Iterator[Figure]:
    """The trainer's log-probabilities with bfloat16 products, and on a GPU with float32 products in TF32, against exact
    float32 products.
    """
    exact, half = (trained_logprobs(model, device, kind) for kind in ("float32", "bfloat16"))
    yield Figure("mean difference", (half - exact).abs().mean().item(), "nats", most=0.02)
    yield Figure("largest difference", (half - exact).abs().max().item(), "nats", most=0.25)
    if device.type == "cuda":
        tf32 = trained_logprobs(model, device, "float32", precision="high")
        yield Figure("largest difference of TF32", (tf32 - exact).abs().max().item(), "nats", most=0.05)


def attention(model: Path, device: torch.device) -> Iterator[Figure]:
    """Sequences laid end to end in one row, against each sequence alone through transformers' own attention, float32."""
    packed = trained_logprobs(model, device, "float32")
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").to(device).eval()
    torch.set_float32_matmul_precision("highest")
    alone = []
    with torch.no_grad():
        for one in sequences(model, LENGTHS):
            ids = torch.from_numpy(one.tokens.astype(np.int64)).to(device)[None]
            logp = torch.log_softmax(plain(input_ids=ids, use_cache=False).logits[0].float(), -1)
            each = logp[:-1].gather(1, ids[0, 1:, None])[:, 0]
            alone.append(each[torch.from_numpy(one.mask[1:].astype(bool)).to(device)])
    difference = (packed - torch.cat(alone)).abs().max().item()
    yield Figure("largest difference of a log-probability", difference, "nats", most=5e-3 if device.type == "cuda" else 1e-3)


def kernels(model: Path, device: torch.device) -> Iterator[Figure]:
    """The kernels for sequences of any length, against sdpa over rows of similar length. On a GPU, compares
    log-probabilities and gradients of varlen and flex in bfloat16; on a CPU, the log-probabilities of flex in
    float32, because flex has no backward pass there and varlen does not run.
    """
    on_cuda = device.type == "cuda"
    kind = "bfloat16" if on_cuda else "float32"
    plain = new_trainer(model, device, kind, attention="sdpa")
    want, gradient = graded(plain)
    for kernel in ("varlen", "flex") if on_cuda else ("flex",):
        plain.model.set_attn_implementation(ATTENTIONS[kernel])
        got, other = graded(plain, backward=on_cuda)
        yield Figure(f"{kernel}: largest difference of a log-probability", (got - want).abs().max().item(), "nats", most=0.25 if on_cuda else 1e-3)
        if on_cuda:
            yield Figure(f"{kernel}: largest difference of a gradient, relative", worst(other, gradient), most=0.1)


def compiled(model: Path, device: torch.device) -> Iterator[Figure]:
    """Compiled layers against uncompiled ones, in float32. On a CPU, torch.compile only captures the graphs (about a
    minute).
    """
    want, gradient = graded(new_trainer(model, device, "float32", attention="sdpa"))
    compiling = torch.compile
    if device.type == "cpu":
        torch.compile = lambda function, **options: compiling(function, backend="aot_eager", **options)  # type: ignore[assignment]
    try:
        got, other = graded(new_trainer(model, device, "float32", attention="sdpa", compiled="layer"))
    finally:
        torch.compile = compiling
    bound = 5e-3 if device.type == "cuda" else 1e-3
    yield Figure("largest difference of a log-probability", (got - want).abs().max().item(), "nats", most=bound)
    yield Figure("largest difference of a gradient, relative", worst(other, gradient), most=0.02 if device.type == "cuda" else 1e-3)


def graded(trainer: Trainer, backward: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probabilities of the trained tokens of the LENGTHS sequences, and for each parameter the gradient of their
    sum.
    """
    micro = micro_batch_of(trainer)
    trainer.drop_gradients()
    with torch.set_grad_enabled(backward):
        logp = trainer.logprobs(micro, 1.0, False)[0].float()
    if backward:
        logp.sum().backward()
    return logp.detach(), {name: p.grad.clone() for name, p in trainer.parameters.items() if p.grad is not None}


def worst(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(relative(one[name], value) for name, value in other.items())


def engine(model: Path, device: torch.device) -> Iterator[Figure]:
    """Log-probabilities that the engine reports for what it samples, against the trainer's for the same tokens."""
    kind = "bfloat16" if device.type == "cuda" else "float32"
    answers = sampled(model, device, count=16, tokens=64, kind=kind)
    trainer = new_trainer(model, device, kind)
    differences = []
    for answer in answers:
        whole = np.concatenate([answer.request.context, answer.tokens])
        mask = np.arange(len(whole)) >= len(answer.request.context)
        (micro,) = trainer.micro_batches(Batch([whole], [mask], [1.0], None, [1.0]), 1 << 20)
        with torch.no_grad():
            logp, _ = trainer.logprobs(micro, 1.0, False)
        differences.append(np.abs(logp.cpu().numpy() - answer.logprobs))
    every = np.concatenate(differences)
    yield Figure("mean difference", float(every.mean()), "nats", most=0.03 if kind == "bfloat16" else 1e-4)
    yield Figure("largest difference", float(every.max()), "nats", most=0.5 if kind == "bfloat16" else 1e-3)


def new_trainer(model: Path, device: torch.device, kind: str, checkpointing: bool = False, **options: str) -> Trainer:
    return Trainer(model, str(device), kind, 0, lora=None, checkpointing=checkpointing, **options)


@torch.no_grad()
def trained_logprobs(model: Path, device: torch.device, kind: str, precision: str = "highest") -> Tensor:
    """Log-probabilities of the trained tokens of LENGTHS as the trainer computes them, float32, longest sequence first.
    precision: torch's name for the precision of float32 products; the trainer itself sets "high" (TF32) on a GPU.
    """
    trainer = new_trainer(model, device, kind)
    torch.set_float32_matmul_precision(precision)
    return trainer.logprobs(micro_batch_of(trainer), 1.0, False)[0].float()


def micro_batch_of(trainer: Trainer) -> MicroBatch:
    """The sequences of LENGTHS in one pack."""
    rows = sequences(Path(trainer.model_dir), LENGTHS)
    masks = [trainer.trained_mask(one.trajectory, one.tokens, one.mask) for one in rows]
    batch = Batch([one.tokens for one in rows], masks, [1.0] * len(rows), None, [1.0] * len(rows))
    (micro,) = trainer.micro_batches(batch, sum(LENGTHS))
    return micro


def sampled(model: Path, device: torch.device, count: int, tokens: int, kind: str = "auto") -> list[Finished]:
    """Answers of exactly `tokens` tokens to `count` prompts of 32 tokens, from our engine."""
    answers: list[Event] = []
    options = EngineOptions(kv_tokens=count * (tokens + 64), max_sequences=count, context_tokens=tokens + 64)
    running = Engine(load_model(model, str(device), kind), options, lambda events: answers.extend(event for _, event in events))
    draw, vocabulary = np.random.default_rng(3), vocabulary_of(model)
    for at in range(count):
        context = draw.integers(3, vocabulary, 32).astype(np.int32)
        running.submit(Request(request_id=f"r{at}", trajectory=f"t{at}", context=context, max_tokens=tokens, seed=at))
    while running.step():
        pass
    running.close()
    done = [answer for answer in answers if isinstance(answer, Finished)]
    if len(done) != count:
        raise RuntimeError(f"{len(done)} of {count} requests were answered; others: {[a for a in answers if a not in done][:1]}")
    return done


def relative(a: Tensor, b: Tensor) -> float:
    """Largest difference of two tensors, as a share of the largest entry of the second."""
    return ((a - b).abs().max() / b.abs().max()).item()


def parameters_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
