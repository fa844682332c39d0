"""Rates of a device: the head against one dense product, tokens/s of generation and of training, and model FLOP/s
utilization (MFU).

In: a model directory, a device. Out: figures. Only the head's ratio on a GPU and the gradient's norm have a bound: rates depend on
the machine and on what else it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from figures import Figure
from measure.batches import step_options
from models import sequences, vocabulary_of
from parity import new_trainer, parameters_of, sampled
from torch import nn

from troupe_policy.model.logprobs import Head, chunked_logprobs

# Dense bfloat16 TFLOP/s by the data sheets; a device without an entry gets no utilization.
PEAK_TFLOPS = {"H100": 989.0, "H200": 989.0, "A100": 312.0, "RTX 4090": 165.0, "L40S": 362.0, "MI300X": 1307.0}


def head(model: Path, device: torch.device) -> Iterator[Figure]:
    """Time of the chunked head's log-probabilities as a multiple of one dense matrix product of the same size."""
    vocabulary, width = vocabulary_of(model), 896
    rows = 16_384 if device.type == "cuda" else 64
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    hidden = torch.randn(rows, width, device=device, dtype=kind)
    weight = torch.randn(max(vocabulary, 49_152), width, device=device, dtype=kind)
    targets = torch.randint(weight.shape[0], (rows,), device=device)
    dense: list[float] = []
    ours: list[float] = []
    with torch.no_grad():
        for _ in range(8):  # in turns, so that a slow moment of the machine slows both
            dense.append(timed(lambda: nn.functional.linear(hidden, weight), device))
            ours.append(timed(lambda: chunked_logprobs(hidden, Head(weight, None), targets), device))
    ratio = sorted(a / b for a, b in zip(ours[1:], dense[1:], strict=True))[len(ours) // 2 - 1]
    yield Figure("time of the head over one dense product", ratio, "×", most=None if device.type == "cpu" else 3.0)


def generation(model: Path, device: torch.device) -> Iterator[Figure]:
    """Tokens/s of our engine with 64 sequences at once (8 on a CPU)."""
    count, tokens = (64, 256) if device.type == "cuda" else (8, 64)
    sampled(model, device, count, 8)  # warms up
    begun = time.perf_counter()
    answers = sampled(model, device, count, tokens)
    yield Figure(f"tokens/s of {count} sequences", sum(len(a.tokens) for a in answers) / (time.perf_counter() - begun))
    yield from peak_memory(device)


def training(model: Path, device: torch.device) -> Iterator[Figure]:
    """Tokens/s of a GRPO step with bfloat16 products and activation checkpointing; for a GPU in PEAK_TFLOPS also its
    MFU.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    trainer = new_trainer(model, device, "bfloat16", checkpointing=True)
    batch = sequences(model, [2048, 1536, 1024, 512] * 8 if device.type == "cuda" else [128, 96, 64, 32])
    for _ in range(2):  # the first step warms up
        metrics = trainer.step(batch, step_options(16_384))
    rate = metrics["tokensPerSecond"]
    yield Figure("gradient norm", metrics["gradNorm"], least=1e-12)
    yield Figure("tokens/s", rate)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    peak = next((tflops for part, tflops in PEAK_TFLOPS.items() if part in name), None)
    if peak is not None:
        # 6 FLOPs a parameter and token, by convention: recomputed activations do not count as work.
        yield Figure("model FLOP/s utilization", 6 * parameters_of(trainer.model) * rate / (peak * 1e12))
    yield from peak_memory(device)


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call, to the end of its work on the device."""
    synchronize(device)
    begun = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - begun


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(device: torch.device) -> Iterator[Figure]:
    if device.type == "cuda":
        yield Figure("peak memory", torch.cuda.max_memory_allocated(device) / 2**30, "GiB")
