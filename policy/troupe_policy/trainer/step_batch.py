"""The batch of a GRPO step, spread over the ranks: rank 0 checks all sequences and sends each rank those that it trains
on.

In: rank 0's sequences, the options that cut the batch into mini-batches. Out: a description of every sequence on every
rank, and the arrays of a rank's own share.
Invariants: a rank other than 0 never holds the arrays of another rank's share. A sequence that rank 0 refuses is
refused on every rank. The cut depends only on the descriptions and the options, so all ranks cut alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .batch.example_files import Lazy
from .batch.micro_batch import Batch
from .batch.mini_batch import mini_batches
from .losses.loss_norm import sequence_denominators
from .options import GrpoOptions, TrainerError, TrainSequence
from .training_state import TrainingState


@dataclass(frozen=True)
class Described:
    """One sequence without its arrays. length: all its tokens. trained: the tokens that count in the loss."""

    trajectory: str
    group: int
    advantage: float
    length: int
    trained: int


# tokens int32 [n], mask of trained tokens bool [n], the engine's log-probabilities float32 [n]
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class StepBatch:
    """described: all sequences of the batch. digest: sha256 of the batch, '' if it was not asked for. mini_batches: one
    for each optimizer update of a pass, whose arrays can be read only for this rank's share.
    """

    described: Sequence[Described]
    digest: str
    mini_batches: Sequence[Batch]

    @property
    def trained(self) -> int:
        return sum(one.trained for one in self.described)

    @property
    def tokens(self) -> int:
        return sum(one.length for one in self.described)


def spread(state: TrainingState, sequences: Sequence[TrainSequence], options: GrpoOptions, *, digested: bool) -> StepBatch:
    """Spreads rank 0's sequences over the ranks; those of other ranks are ignored. Collective.

    digested: also compute the batch's digest. Raises TrainerError on every rank: trainer.empty_batch, or the error of a
    sequence.
    """
    ranks = state.ranks
    masks: list[np.ndarray] = []
    problem: TrainerError | None = None
    if ranks.is_leader:
        try:
            masks = [state.trained_mask(s.trajectory, s.tokens, s.mask, s.engine_logp) for s in sequences]
        except TrainerError as error:
            problem = error
    for code, text in ranks.every((problem.code, str(problem)) if problem else None):
        raise problem or TrainerError(code, text)
    described = [
        Described(s.trajectory, s.group, s.advantage, len(s.tokens), int(mask.sum()))
        for s, mask in zip(sequences if ranks.is_leader else (), masks, strict=True)
    ]
    digest = _digest(sequences) if digested and ranks.is_leader else ""
    described, digest = ranks.broadcast((described, digest))  # type: ignore[misc]
    cut = _cut(described, options)
    shares = [state.shares([described[at].length for at in part]) for part in cut]

    def arrays(rank: int) -> dict[int, Arrays]:
        own = [part[at] for part, share in zip(cut, shares, strict=True) for at in share[rank]]
        return {at: (sequences[at].tokens, masks[at], sequences[at].engine_logp) for at in own}

    held: dict[int, Arrays] = ranks.scatter(arrays)  # type: ignore[assignment]
    return StepBatch(described, digest, [_mini_batch(part, described, held, options) for part in cut])


def _cut(described: Sequence[Described], options: GrpoOptions) -> list[list[int]]:
    """Indices of the sequences of each mini-batch; a sequence without a trained token is in none.

    The seed of the shuffle is the recipe's seed and the first trajectory's name, which differs from step to step.
    """
    kept = [at for at, one in enumerate(described) if one.trained > 0]
    if not kept:
        raise TrainerError("trainer.empty_batch", f"none of the {len(described)} sequences has a token to train on: expected a token with mask 1 after the first one")
    seed = f"{options.mini_batch_seed}/{described[kept[0]].trajectory}"
    cut = mini_batches([described[at].group for at in kept], options.mini_batches, options.mini_batch_unit, seed)
    return [[kept[at] for at in part] for part in cut]


def _mini_batch(
    part: Sequence[int], described: Sequence[Described], held: dict[int, Arrays], options: GrpoOptions
) -> Batch:
    """Makes a mini-batch. Its loss denominators count the whole mini-batch, whichever ranks hold its sequences."""
    members = [described[at] for at in part]
    counts, groups = [one.trained for one in members], [one.group for one in members]
    return Batch(
        Lazy(len(part), lambda row: held[part[row]][0]),
        Lazy(len(part), lambda row: held[part[row]][1]),
        [one.advantage for one in members],
        Lazy(len(part), lambda row: held[part[row]][2]),
        sequence_denominators(counts, groups, options.loss_norm, options.constant_tokens),
        [one.length for one in members],
    )


def _digest(sequences: Sequence[TrainSequence]) -> str:
    batch = hashlib.sha256()
    for s in sequences:
        batch.update(f"{s.trajectory}/{s.group}/{s.advantage!r}/{len(s.tokens)}\n".encode())
        for array in (s.tokens, s.mask, s.engine_logp):
            batch.update(np.ascontiguousarray(array))
    return batch.hexdigest()
