"""Cutting a batch of sequences into padded micro-batches with little padding, in an order that is always the same.

In: lengths and a bound of padded tokens. Out: index lists and padded id tensors. Invariants: every sequence is in
exactly one micro-batch; the cut depends on lengths and positions only, never on time or hashing; rows are padded on the
right, so a causal model needs no mask.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# Batches whose sequences are sorted by length together: enough for little padding, few enough that a batch stays mixed.
SORT_WINDOW_BATCHES = 32


def micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of `lengths`, longest first, cut so that rows × longest ≤ max_tokens (one row always fits).

    Longest first: what does not fit into memory fails at once and not at the end.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def epoch_batches(lengths: Sequence[int], batch_sequences: int, seed: int, epoch: int) -> list[list[int]]:
    """One epoch's optimizer batches: shuffled by (seed, epoch), then alike lengths together, then batches shuffled.

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


def pad_right(rows: Sequence[np.ndarray], device: torch.device | str) -> Tensor:
    """[rows, longest] int64; the padding is id 0, which no trained position ever sees."""
    padded = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
    for at, row in enumerate(rows):
        padded[at, : len(row)] = row
    return torch.from_numpy(padded).to(device)


def target_positions(masks: Sequence[np.ndarray], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Where in the flattened [rows × width] states the predictors of trained tokens are, and of which row each is.

    The state at position t predicts token t + 1; a row's first token has no predictor and is never trained on.
    Returns (positions [trained], row of each [trained]), row by row, ascending.
    """
    positions: list[np.ndarray] = []
    owners: list[np.ndarray] = []
    for row, mask in enumerate(masks):
        at = np.flatnonzero(mask[1:])
        positions.append(at + row * width)
        owners.append(np.full(len(at), row, dtype=np.int64))
    return np.concatenate(positions).astype(np.int64), np.concatenate(owners)
