"""Compaction: moves the blocks of running rows to the low end of the storage, because a decode reads every block up to
the highest one that it needs.

In: the block tables, the KV storage, the rows that decode now, each with at least one block. Out: the same keys and
values under other block numbers.
Invariant: blocks change places in pairs, so the keys and values of other rows are never lost.
"""

from __future__ import annotations

import numpy as np

from .blocks import BlockTables
from .kv import KvBlocks

# Blocks move when the blocks that a decode would read without need exceed this share of the blocks that it needs.
SPARE_SHARE = 1 / 4


def compact(tables: BlockTables, store: KvBlocks, rows: np.ndarray) -> None:
    """Exchanges blocks of `rows` with lower blocks that are free or of other rows, if a decode of `rows` would
    otherwise read too many blocks in vain (SPARE_SHARE).
    """
    mine = np.zeros(len(tables.count) + 1, bool)
    mine[rows] = True
    needed = mine[tables.owner]  # a free block's owner is -1, which indexes the last entry: False
    count = int(tables.count[rows].sum())
    if int(np.flatnonzero(needed)[-1]) + 1 <= count * (1 + SPARE_SHARE):
        return
    high = count + np.flatnonzero(needed[count:])
    low = np.flatnonzero(~needed[:count])
    store.exchange(low, high)
    tables.exchange(low, high)
