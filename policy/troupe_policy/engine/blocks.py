"""Block tables of the KV storage: which blocks hold the keys and values of which row, in order. Holds no tensors.

In: rows (one for each sequence) and the number of tokens that each has to store. Out: block numbers, and the storage
slot of a token.
Invariants: a block belongs to at most one row. A row grows by the lowest free blocks, so that the blocks in use stay
together at the low end of the storage, where a decode reads them in place.
"""

from __future__ import annotations

import heapq

import numpy as np


class BlockTables:
    """table: int64 [rows, width], block numbers of each row; the first count[row] of a row are valid. owner: int64
    [blocks], the row that a block belongs to, -1 if it is free. index: int64 [blocks], the block's place in its row.
    """

    def __init__(self, rows: int, capacity: int, block_tokens: int, blocks: int) -> None:
        self.block_tokens, self.blocks = block_tokens, blocks
        width = min(-(-capacity // block_tokens), blocks)
        self.table = np.zeros((rows, width), np.int64)
        self.count = np.zeros(rows, np.int64)
        self.owner = np.full(blocks, -1, np.int64)
        self.index = np.zeros(blocks, np.int64)
        self._free = list(range(blocks))  # a heap

    @property
    def used(self) -> int:
        """Number of blocks that are not free, of all rows together."""
        return self.blocks - len(self._free)

    def grow(self, row: int, tokens: int) -> None:
        """Gives a row blocks for its positions 0 to tokens - 1. The caller has made room before (Ledger.shrink), so a
        block is free.
        """
        for at in range(int(self.count[row]), -(-tokens // self.block_tokens)):
            block = heapq.heappop(self._free)
            self.table[row, at] = block
            self.owner[block], self.index[block] = row, at
            self.count[row] = at + 1

    def grow_all(self, rows: np.ndarray, tokens: np.ndarray) -> None:
        """Gives row rows[i] blocks for tokens[i] positions, for every i; int64 [n] each. Rows that have enough are
        skipped.
        """
        short = np.nonzero(self.count[rows] * self.block_tokens < tokens)[0]
        for i in short:
            self.grow(int(rows[i]), int(tokens[i]))

    def trim(self, row: int, tokens: int) -> None:
        """Frees the blocks of a row beyond its first `tokens` positions."""
        keep = -(-tokens // self.block_tokens)
        for block in self.table[row, keep : self.count[row]].tolist():
            self.owner[block] = -1
            heapq.heappush(self._free, block)
        self.count[row] = min(int(self.count[row]), keep)

    def exchange(self, low: np.ndarray, high: np.ndarray) -> None:
        """Exchanges the owners of block low[i] and block high[i], for every i; int64 [n] each. The caller exchanges the
        blocks' keys and values.
        """
        for array in (self.owner, self.index):
            array[low], array[high] = array[high], array[low]
        changed = np.concatenate([low, high])
        owned = changed[self.owner[changed] >= 0]
        self.table[self.owner[owned], self.index[owned]] = owned
        if len(owned) < len(changed):
            self._free = np.flatnonzero(self.owner < 0).tolist()  # ascending, so it is a heap

    def slots(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Storage slots of tokens, int64 [n]: block number · block_tokens + place in the block."""
        blocks = self.table[rows, positions // self.block_tokens]
        return blocks * self.block_tokens + positions % self.block_tokens
