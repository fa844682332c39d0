"""Cuts the batch of a step into mini-batches, each of which gets one optimizer update (PPO, arXiv 1707.06347 §5).

In: the group of each sequence, the number of mini-batches, the unit that is drawn (groups: a group stays together;
sequences: each is drawn by itself), the seed of the random order. Out: a list of sequence indices for each mini-batch.
Invariants: every sequence is in exactly one mini-batch, and within it in the batch's order; the cut depends on the
arguments only, so a replay of the step cuts alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

MINI_BATCH_UNITS = ("groups", "sequences")


def mini_batches(groups: Sequence[int], count: int, unit: str, seed: str) -> list[list[int]]:
    """Indices of the sequences of each mini-batch; the mini-batches' numbers of units differ by at most one.

    groups: [sequences], at least one. unit: `groups` keeps the sequences of a group together, `sequences` draws each
    by itself. seed: seed of the units' random order. A batch of fewer units than `count` gives one mini-batch per unit.
    Raises ValueError for another unit.
    """
    if unit not in MINI_BATCH_UNITS:
        raise ValueError(f"the unit of mini-batches is {unit!r}: expected one of {', '.join(MINI_BATCH_UNITS)}")
    if count == 1:
        return [list(range(len(groups)))]
    by_group: dict[int, list[int]] = {}
    for at, group in enumerate(groups):
        by_group.setdefault(group, []).append(at)
    units = list(by_group.values()) if unit == "groups" else [[at] for at in range(len(groups))]
    random.Random(seed).shuffle(units)
    parts = min(count, len(units))
    cuts = [len(units) * part // parts for part in range(parts + 1)]
    return [sorted(at for one in units[cuts[part] : cuts[part + 1]] for at in one) for part in range(parts)]
