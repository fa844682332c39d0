"""Cuts sequences into optimizer batches and micro-batches, reproducibly.

In: lengths, a bound on tokens or sequences, a seed. Out: lists of indices. Invariants: every sequence is in exactly one
batch of an epoch and in one micro-batch; the cut depends on the arguments only, never on time or hashing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

# Number of batches whose sequences are sorted by length together: enough for little padding, few enough to stay mixed.
SORT_WINDOW_BATCHES = 32

# Upper bound on the activations that a micro-batch saves on a CPU, in bytes, unless twice the parameters' size is more.
# Larger micro-batches are not faster.
CPU_ACTIVATION_BYTES = 256 * 1024 * 1024


def micro_batches(lengths: Sequence[int], max_tokens: int, *, packed: bool = False) -> list[list[int]]:
    """Cuts the indices of `lengths`, longest first, into micro-batches of at most max_tokens; a longer sequence is a
    micro-batch of its own.

    packed: a micro-batch's size is the sum of its lengths; otherwise rows × longest, since rows are padded.
    Longest first: a micro-batch that does not fit into memory fails at the start, not at the end.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    used = 0
    for index in order:
        cost = lengths[index] if packed or not batches else lengths[batches[-1][0]]
        if batches and used + cost <= max_tokens:
            batches[-1].append(index)
            used += cost
        else:
            batches.append([index])
            used = lengths[index]
    return batches


def epoch_batches(lengths: Sequence[int], batch_sequences: int, seed: int, epoch: int) -> list[list[int]]:
    """Optimizer batches of one epoch. The sequences are shuffled by (seed, epoch), sorted by length within windows of
    SORT_WINDOW_BATCHES batches, and cut into batches, which are shuffled.

    Returns ceil(n / batch_sequences) lists of indices; every index appears once.
    """
    generator = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    generator.shuffle(order)
    window = batch_sequences * SORT_WINDOW_BATCHES
    batches: list[list[int]] = []
    for start in range(0, len(order), window):
        part = sorted(order[start : start + window], key=lambda index: (lengths[index], index))
        batches += [part[at : at + batch_sequences] for at in range(0, len(part), batch_sequences)]
    generator.shuffle(batches)
    return batches


def cpu_micro_tokens(model: torch.nn.Module) -> int:
    """Upper bound on the tokens of a micro-batch on a CPU: that many tokens save activations of at most
    CPU_ACTIVATION_BYTES, or of twice the parameters' bytes if that is more.

    A layer saves about 18 vectors of the hidden size and 5 of the intermediate size per token (measured on Llama
    models, within a tenth). For another architecture the estimate is less exact, which costs only speed or memory.
    """
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    hidden = int(getattr(config, "hidden_size", 0) or 1024)
    inner = int(getattr(config, "intermediate_size", 0) or 4 * hidden)
    layers = int(getattr(config, "num_hidden_layers", 0) or 12)
    parameter_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    return max(1, max(CPU_ACTIVATION_BYTES, 2 * parameter_bytes) // (layers * (18 * hidden + 5 * inner) * 4))
