"""Prefill: computes the missing keys (with their values) of contexts, many rows in one forward pass. A row is the
storage of one sequence. Unless the engine is deterministic, the rows of a group share one computation of their common
prompt.

In: rows that lack keys before their last token. Out: those keys, as many as the budget of an iteration allows; a row
that has all of them is ready to decode.
Invariant: a prefill never computes the keys of a row's last token; the decode does, so every token is sampled in the
same way.
"""

from __future__ import annotations

import numpy as np
import torch

from .admission import common_prefix
from .forward import Forward
from .kv import KvBlocks
from .ledger import Ledger
from .requests import Sequence

# Upper bound on the iterations by which a small prefill is delayed, so that more rows can join it. A prefill is small
# if its rows lack fewer than SMALL_PREFILL_TOKENS keys together, and are fewer than an eighth of the rows that are
# ready to decode.
MAX_DELAY_ITERATIONS = 4
SMALL_PREFILL_TOKENS = 512


class Prefill:
    """batch_tokens: upper bound on the padded tokens of one forward pass. `computed` counts tokens without padding.

    copies: members of a group copy their common prompt. Which keys are copied depends on the order of arrival, and
    answers report it (cached_tokens), so a deterministic engine does not copy.
    """

    def __init__(self, ledger: Ledger, store: KvBlocks, forward: Forward, batch_tokens: int, copies: bool) -> None:
        self._ledger, self._store, self._forward, self._batch_tokens = ledger, store, forward, batch_tokens
        self._copies = copies
        self.computed = 0

    def pending(self) -> list[Sequence]:
        """Running sequences that lack keys before their last token, in order of priority."""
        ledger = self._ledger
        rows = ledger.running
        rows = rows[ledger.filled[rows] < ledger.size[rows] - 1]
        return sorted((ledger.owner[row] for row in rows), key=lambda sequence: sequence.order)

    def run(self) -> None:
        """Computes at most `batch_tokens` missing keys. Delays a small prefill by at most MAX_DELAY_ITERATIONS
        iterations.
        """
        pending = self.pending()
        if not pending:
            return
        ledger = self._ledger
        lacking = sum(int(ledger.size[s.row] - 1 - ledger.filled[s.row]) for s in pending)
        ready = len(ledger.running) - len(pending)
        is_small = lacking < SMALL_PREFILL_TOKENS and len(pending) * 8 < ready
        if is_small and max(sequence.waited for sequence in pending) < MAX_DELAY_ITERATIONS:
            for sequence in pending:
                sequence.waited += 1
            return
        budget = self._batch_tokens
        while pending and budget > 0:
            batch = self.next_batch(pending, budget)
            fresh = [item for item in batch if ledger.filled[item[0].row] == 0]
            longer = [item for item in batch if ledger.filled[item[0].row] > 0]
            budget -= self._fill(fresh) + self._fill(longer)
            pending = [s for s in pending if ledger.filled[s.row] < ledger.size[s.row] - 1]

    def next_batch(self, pending: list[Sequence], budget: int) -> list[tuple[Sequence, int]]:
        """[(sequence, number of tokens to compute now)], at most `budget` tokens in all. With `copies`, one member of a
        group is computed first; the other members copy keys from its row in a later batch.
        """
        ledger = self._ledger
        batch: list[tuple[Sequence, int]] = []
        groups: set[str] = set()
        for sequence in pending:
            if budget <= 0:
                break
            if self._copies and sequence.group is not None:
                if not sequence.shared:
                    if sequence.group in groups:
                        continue
                    self._copy_prefix(sequence)
                groups.add(sequence.group)
            lacking = int(ledger.size[sequence.row] - 1 - ledger.filled[sequence.row])
            if lacking > 0:
                batch.append((sequence, min(lacking, budget)))
                budget -= lacking
        return batch

    def _copy_prefix(self, sequence: Sequence) -> None:
        """Copies keys and values from that row of the group that has the longest prefix in common with this sequence,
        if the prefix is longer than what the sequence's row holds. Rows do not share blocks, so they must be copied.
        """
        ledger, row = self._ledger, sequence.row
        sequence.shared = True
        context = ledger.tokens[row, : ledger.size[row] - 1]
        best, best_row = int(ledger.filled[row]), None
        for other in ledger.groups[sequence.group]:
            if other != row and ledger.filled[other] > best:
                common = common_prefix(ledger.tokens[other, : ledger.filled[other]], context)
                if common > best:
                    best, best_row = common, other
                    if best == len(context):
                        break
        if best_row is not None:
            tables = ledger.tables
            tables.grow(row, best)
            count = ledger.blocks(best)
            with torch.inference_mode():
                self._store.copy(tables.table[best_row, :count].tolist(), tables.table[row, :count].tolist())
            ledger.filled[row] = best
            if sequence.first_token_at == 0:
                sequence.cached_tokens = max(sequence.cached_tokens or 0, best)

    def _fill(self, part: list[tuple[Sequence, int]]) -> int:
        """Runs forward passes over rows of similar length, each within `batch_tokens` padded tokens; returns the number
        of tokens computed.
        """
        ledger, done = self._ledger, 0
        part = sorted(part, key=lambda item: -item[1])
        while part:
            width = part[0][1]
            most = max(1, self._batch_tokens // width)
            # Rows shorter than half the longest go into another forward pass: padding costs as much as tokens.
            count = next((i for i, (_, n) in enumerate(part) if i >= most or n * 2 < width), len(part))
            now, part = part[:count], part[count:]
            rows = np.array([s.row for s, _ in now], np.int64)
            starts = ledger.filled[rows]
            pieces = [ledger.tokens[s.row, a : a + n] for (s, n), a in zip(now, starts, strict=True)]
            self._forward.prefill(rows, starts, pieces)
            counts = np.array([n for _, n in now], np.int64)
            ledger.filled[rows] += counts
            done += int(counts.sum())
        self.computed += done
        return done
