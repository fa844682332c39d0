"""Forward passes of an engine: decode over rows, prefill of several rows at once, and the fixed shape of deterministic
mode.

In: row numbers, positions and tokens as numpy arrays. Out: logits; a prefill returns nothing. Before a pass writes keys
and values, it gives its rows the blocks for them.
Invariant: in `fixed`, a token's logits and keys depend only on the tokens of its row up to it, to the bit.
"""

from __future__ import annotations

import numpy as np
import torch

from .blocks import BlockTables
from .compact import compact
from .kv import Decode, Gather, KvBlocks, Pass
from .loaded_model import LoadedModel


class Forward:
    def __init__(self, loaded: LoadedModel, store: KvBlocks, tables: BlockTables) -> None:
        self._loaded, self._store, self._tables = loaded, store, tables
        base = loaded.model.base_model
        # The model without its head, for prefills, which need no logits.
        self._body = base if base is not loaded.model else loaded.model

    def decode(self, rows: np.ndarray, tokens: np.ndarray, positions: np.ndarray) -> torch.Tensor:
        """Decodes one token for each row. rows, tokens, positions: int [n]. Returns logits [n, vocabulary] in the
        model's dtype.
        """
        self._tables.grow_all(rows, positions + 1)
        with torch.inference_mode():
            compact(self._tables, self._store, rows)
        slots = self._tables.slots(rows, positions)
        out = self._run(self._loaded.model, slots, None, positions[:, None], self._reads(rows, positions), tokens[:, None])
        return out.logits[:, -1]

    def _reads(self, rows: np.ndarray, positions: np.ndarray) -> Decode:
        """Makes the reads of a decode: all blocks of the storage up to the highest one that one of these rows owns."""
        tables, n = self._tables, len(rows)
        line_of_row = np.full(len(tables.count) + 1, n, np.int64)
        line_of_row[rows] = np.arange(n)
        line = line_of_row[tables.owner]  # a free block's owner is -1, which indexes the last entry
        top = int(np.flatnonzero(line < n)[-1]) + 1
        start = tables.index[:top] * tables.block_tokens
        return Decode(self._tensor(line[:top]), self._tensor(start), self._tensor(np.append(positions, -1)))

    def prefill(self, rows: np.ndarray, starts: np.ndarray, pieces: list[np.ndarray]) -> None:
        """Computes keys and values of the tokens pieces[i] (int32 [n]) and writes them into row rows[i], from position
        starts[i] on. Either all starts must be 0, or none.
        """
        lengths = np.array([len(piece) for piece in pieces])
        count, width = len(rows), int(lengths.max())
        tokens = np.zeros((count, width), np.int64)
        at = np.arange(width)
        real = at[None, :] < lengths[:, None]
        tokens[real] = np.concatenate(pieces)
        ends = starts + lengths
        # Padding repeats the last position, so that it never asks for a position beyond the model's.
        positions = np.minimum(starts[:, None] + at[None, :], ends[:, None] - 1)
        self._tables.grow_all(rows, ends)
        of_token = np.broadcast_to(rows[:, None], real.shape)
        slots = self._tables.slots(of_token[real], positions[real])
        index = None if real.all() else np.nonzero(real.reshape(-1))[0]
        reads = None if (starts == 0).all() else self._gathers(rows, positions)
        self._run(self._body, slots, index, positions, reads, tokens)

    def _gathers(self, rows: np.ndarray, positions: np.ndarray) -> list[Gather]:
        """Splits the rows into parts whose blocks, each row padded to the longest of its part, fit the scratch. A row
        that does not fit is a part of its own. positions: [rows, t], of the tokens of this pass.
        """
        blocks = positions[:, -1] // self._tables.block_tokens + 1
        gathers: list[Gather] = []
        first = 0
        while first < len(rows):
            end = first + 1
            while end < len(rows) and blocks[first : end + 1].max() * (end + 1 - first) <= self._store.scratch_blocks:
                end += 1
            gathers.append(self._gather(first, rows[first:end], positions[first:end]))
            first = end
        return gathers

    def _gather(self, first: int, rows: np.ndarray, positions: np.ndarray) -> Gather:
        table = self._tables.table[rows]
        count = positions[:, -1] // self._tables.block_tokens + 1
        width = int(count.max())
        blocks = np.where(np.arange(width) < count[:, None], table[:, :width], table[:, :1])
        return Gather(first, self._tensor(blocks), self._tensor(positions))

    def fixed(self, rows: np.ndarray, positions: np.ndarray, tokens: np.ndarray, width: int) -> torch.Tensor:
        """Computes any mixture of prefill and decode with one token per line, always `width` lines. Each line attends
        by itself, over as many blocks as its own position needs.

        rows, positions, tokens: int [n], n ≤ width; several lines may belong to one row. Returns logits [width,
        vocabulary].
        """
        n = len(rows)

        def padded(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values, np.zeros(width - n, np.int64)]).astype(np.int64)[:, None]

        self._tables.grow_all(rows, positions + 1)
        slots = self._tables.slots(rows, positions)
        reads = [self._gather(i, rows[i : i + 1], positions[i : i + 1, None]) for i in range(n)]
        real = None if n == width else np.arange(n)
        out = self._run(self._loaded.model, slots, real, padded(positions), reads, padded(tokens))
        return out.logits[:, -1]

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self._loaded.device)

    @torch.inference_mode()
    def _run(self, model, slots, real, positions, reads, tokens):
        written = None if real is None else self._tensor(real)
        current = Pass(self._tensor(slots), written, self._tensor(positions), reads)
        return self._store.run(model, current, self._tensor(tokens))
