"""Micro-batches as tensors: sequences laid end to end, and where their trained tokens are.

In: token ids, masks, advantages, the engine's log-probabilities, denominators. Out: what one forward and backward needs.
Invariant: a micro-batch holds whole sequences, and only trained tokens have a position in it. Where a model cannot attend to
sequences laid end to end, they are rows padded on the right, and every number is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .packed_attention import Layout, layout_of


@dataclass(frozen=True)
class Batch:
    """What one optimizer update is computed from: [n] each."""

    tokens: Sequence[np.ndarray]
    masks: Sequence[np.ndarray]
    advantages: Sequence[float]
    engine: Sequence[np.ndarray] | None
    denominators: Sequence[float]


@dataclass
class MicroBatch:
    """`ids`, `places`: [1, tokens] packed or [rows, longest] padded. The others [trained], sequence by sequence."""

    ids: Tensor
    # of each token in its own sequence; None where padded: the model counts itself
    places: Tensor | None
    layout: Layout | None
    # in the flattened states, the predictors of the trained tokens
    positions: Tensor
    targets: Tensor
    # 1; 0 for a micro-batch that only keeps this rank in step with the others
    mask: Tensor
    sequence: Tensor
    advantage: Tensor
    engine: Tensor
    denominator: Tensor
    old: Tensor | None = None
    reference: Tensor | None = None


def micro_batch(
    tokens: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    advantages: Sequence[float],
    engine: Sequence[np.ndarray] | None,
    denominators: Sequence[float],
    *,
    packed: bool,
    device: torch.device,
) -> MicroBatch:
    """tokens, masks (bool, False first), engine: [n] each, longest first; advantages, denominators: one a sequence."""
    lengths = [len(row) for row in tokens]
    if packed:
        ids, begins = np.concatenate(tokens).astype(np.int64)[None], np.cumsum([0, *lengths[:-1]])
        places = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths]))[None].to(device)
    else:
        ids, begins, places = np.zeros((len(tokens), max(lengths)), dtype=np.int64), np.arange(len(tokens)) * max(lengths), None
        for at, row in enumerate(tokens):
            ids[at, : len(row)] = row
    picks = [np.flatnonzero(mask) for mask in masks]
    # the state at position t - 1 predicts token t
    positions = np.concatenate([pick - 1 + begin for pick, begin in zip(picks, begins, strict=True)])
    owners = np.repeat(np.arange(len(tokens)), [len(pick) for pick in picks])
    targets = np.concatenate([row[pick] for row, pick in zip(tokens, picks, strict=True)])
    logprobs = (
        np.zeros(len(targets))
        if engine is None
        else np.concatenate([row[pick] for row, pick in zip(engine, picks, strict=True)])
    )
    numbers = lambda values: torch.tensor(values, dtype=torch.float32)[owners].to(device)  # noqa: E731
    return MicroBatch(
        ids=torch.from_numpy(ids).to(device),
        places=places,
        layout=layout_of(lengths, device) if packed else None,
        positions=torch.from_numpy(positions.astype(np.int64)).to(device),
        targets=torch.from_numpy(targets.astype(np.int64)).to(device),
        mask=torch.ones(len(targets), device=device),
        sequence=torch.from_numpy(owners.astype(np.int64)).to(device),
        advantage=numbers(advantages),
        engine=torch.from_numpy(logprobs.astype(np.float32)).to(device),
        denominator=numbers(denominators),
    )


def idle_micro_batch(*, packed: bool, device: torch.device) -> MicroBatch:
    """Two tokens without a weight: a rank that has no more of its own runs them while others work."""
    row, mask = np.zeros(2, dtype=np.int32), np.array([False, True])
    micro = micro_batch([row], [mask], [0.0], None, [1.0], packed=packed, device=device)
    micro.mask = torch.zeros_like(micro.mask)
    return micro
