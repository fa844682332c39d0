"""Micro-batches as tensors: sequences laid end to end, and the positions of their trained tokens.

In: token ids, masks, advantages, the engine's log-probabilities, denominators. Out: the tensors of one forward and
backward pass.
Invariants: a micro-batch holds whole sequences, and its per-token tensors cover only the trained tokens. For a model
that cannot attend to sequences laid end to end, sequences are rows padded on the right, with the same results.
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
    """Sequences of one optimizer update; each field has one entry per sequence."""

    tokens: Sequence[np.ndarray]
    masks: Sequence[np.ndarray]
    advantages: Sequence[float]
    engine_logp: Sequence[np.ndarray] | None
    denominators: Sequence[float]
    # lengths of the items of `tokens`, given if reading an item reads it from disk; None: the items have their lengths
    lengths: Sequence[int] | None = None


@dataclass
class MicroBatch:
    """ids, position_ids: int64, [1, tokens] packed or [rows, longest] padded. The other tensors: [trained].

    position_ids: each token's index in its own sequence; None if padded, since the model then counts by itself.
    predictors: int64, indices into the flattened hidden states; the state at t - 1 predicts token t.
    targets: int64, token ids. sequence: int64, the index of each token's sequence.
    mask: float32, 1; all 0 in an idle micro-batch, which keeps this rank in step with the others.
    advantage, denominator: float32, those of the token's sequence.
    engine_logp, old_logp, reference_logp: float32, natural log: under the engine, under π_old (the policy before the
    step), and under the reference. old_logp and reference_logp are None until they are computed.
    """

    ids: Tensor
    position_ids: Tensor | None
    layout: Layout | None
    predictors: Tensor
    targets: Tensor
    mask: Tensor
    sequence: Tensor
    advantage: Tensor
    engine_logp: Tensor
    denominator: Tensor
    old_logp: Tensor | None = None
    reference_logp: Tensor | None = None


def micro_batch(
    tokens: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    advantages: Sequence[float],
    engine_logp: Sequence[np.ndarray] | None,
    denominators: Sequence[float],
    *,
    packed: bool,
    device: torch.device,
) -> MicroBatch:
    """Builds the tensors of whole sequences, which the caller gives longest first.

    tokens int32, masks bool (False first), engine_logp float32: an array [n] per sequence. advantages, denominators:
    one number per sequence.
    """
    lengths = [len(row) for row in tokens]
    if packed:
        ids, starts = np.concatenate(tokens).astype(np.int64)[None], np.cumsum([0, *lengths[:-1]])
        position_ids = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths]))[None].to(device)
    else:
        position_ids = None
        ids, starts = np.zeros((len(tokens), max(lengths)), dtype=np.int64), np.arange(len(tokens)) * max(lengths)
        for at, row in enumerate(tokens):
            ids[at, : len(row)] = row
    picks = [np.flatnonzero(mask) for mask in masks]
    predictors = np.concatenate([pick - 1 + start for pick, start in zip(picks, starts, strict=True)])
    owners = np.repeat(np.arange(len(tokens)), [len(pick) for pick in picks])
    targets = np.concatenate([row[pick] for row, pick in zip(tokens, picks, strict=True)])
    logprobs = (
        np.zeros(len(targets))
        if engine_logp is None
        else np.concatenate([row[pick] for row, pick in zip(engine_logp, picks, strict=True)])
    )
    per_token = lambda values: torch.tensor(values, dtype=torch.float32)[owners].to(device)  # noqa: E731
    return MicroBatch(
        ids=torch.from_numpy(ids).to(device),
        position_ids=position_ids,
        layout=layout_of(lengths, device) if packed else None,
        predictors=torch.from_numpy(predictors.astype(np.int64)).to(device),
        targets=torch.from_numpy(targets.astype(np.int64)).to(device),
        mask=torch.ones(len(targets), device=device),
        sequence=torch.from_numpy(owners.astype(np.int64)).to(device),
        advantage=per_token(advantages),
        engine_logp=torch.from_numpy(logprobs.astype(np.float32)).to(device),
        denominator=per_token(denominators),
    )


def idle_micro_batch(*, packed: bool, device: torch.device) -> MicroBatch:
    """Idle micro-batch of two tokens with mask 0: a rank whose micro-batches are done runs it while other ranks work.
    """
    row, mask = np.zeros(2, dtype=np.int32), np.array([False, True])
    micro = micro_batch([row], [mask], [0.0], None, [1.0], packed=packed, device=device)
    micro.mask = torch.zeros_like(micro.mask)
    return micro
