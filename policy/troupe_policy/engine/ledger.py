"""Ledger of the KV storage: which sequence or kept trajectory owns which row, and the blocks that it may use. Holds no
tensors.

In: sequences that start and end, trajectories that are kept between turns. Out: rows, blocks in use, rows to evict or
preempt.
Invariant: after `shrink`, which comes before every forward pass, the running and the kept rows' tokens fit the budget
of blocks, so the block tables have a free block for each new token of the pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .blocks import BlockTables
from .requests import Sequence

# Upper bound on the number of stop tokens of a request.
MAX_STOPS = 8


@dataclass(eq=False)
class Kept:
    """Keys and values of a trajectory, kept between two turns. waiters: number of waiting requests that will continue
    from them. used_at: serial number of the moment when they were kept; the lowest is evicted first, those with waiters
    last.
    """

    trajectory: str
    group: str | None
    row: int
    used_at: int
    waiters: int = 0


class Ledger:
    """State of the rows as parallel arrays, so that an iteration updates all of them with a few numpy calls.

    tokens int32, logprobs float32: [rows, capacity + 1]; entropies float32: the same, or [rows, 0] if they are not
    reported. stops int64: [rows, MAX_STOPS], -1 where unused. The other arrays have one entry per row: the sampling
    options, and int64 numbers of tokens. context: length of the request's context; size: length of context and sampled
    tokens together; filled: number of first positions whose keys are valid; limit: size at which the request has used
    its max_tokens or the row is full; origin: position of the turn's first token, which an earlier attempt may have
    sampled.
    """

    def __init__(
        self, rows: int, capacity: int, block_tokens: int, kv_tokens: int, entropies: bool = False
    ) -> None:
        self.rows, self.capacity, self.block_tokens = rows, capacity, block_tokens
        self.total_blocks = kv_tokens // block_tokens
        self.tokens = np.zeros((rows, capacity + 1), np.int32)
        self.logprobs = np.zeros((rows, capacity + 1), np.float32)
        self.entropies = np.zeros((rows, capacity + 1 if entropies else 0), np.float32)
        self.size = np.zeros(rows, np.int64)
        self.filled = np.zeros(rows, np.int64)
        self.limit = np.zeros(rows, np.int64)
        self.origin = np.zeros(rows, np.int64)
        self.context = np.zeros(rows, np.int64)
        self.seed = np.zeros(rows, np.uint64)
        self.temperature = np.ones(rows, np.float32)
        self.top_k = np.zeros(rows, np.int64)
        self.top_p = np.ones(rows, np.float32)
        self.min_p = np.zeros(rows, np.float32)
        self.stops = np.full((rows, MAX_STOPS), -1, np.int64)
        self.tables = BlockTables(rows, capacity, block_tokens, self.total_blocks)
        self.owner: list[Sequence | Kept | None] = [None] * rows
        self.kept: dict[str, Kept] = {}
        self.groups: dict[str, set[int]] = {}
        self._running: np.ndarray | None = None
        self._clock = 0

    # ---- rows and blocks in use ----
    @property
    def running(self) -> np.ndarray:
        """Row numbers of the running sequences, int64, ascending."""
        if self._running is None:
            rows = [row for row, owner in enumerate(self.owner) if isinstance(owner, Sequence)]
            self._running = np.array(rows, np.int64)
        return self._running

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def kept_blocks(self, awaited: bool | None = None) -> int:
        """Number of blocks of kept rows. awaited: True counts those for which a request waits, False the others, None
        all.
        """
        return sum(
            self.blocks(int(self.filled[kept.row]))
            for kept in self.kept.values()
            if awaited is None or (kept.waiters > 0) == awaited
        )

    def running_blocks(self) -> int:
        size = self.size[self.running]
        return int((-(-size // self.block_tokens)).sum())

    # ---- rows ----
    def free_row(self) -> int | None:
        """Number of the lowest free row, or None."""
        for row, owner in enumerate(self.owner):
            if owner is None:
                return row
        return None

    def place(self, sequence: Sequence, row: int, filled: int) -> None:
        """Gives a sequence a free row in which the keys of the first `filled` positions are valid already. Frees the
        row's blocks beyond them.
        """
        request = sequence.request
        self.tables.trim(row, filled)
        context, sampled = len(request.context), len(sequence.tokens)
        self.tokens[row, :context] = request.context
        self.tokens[row, context : context + sampled] = sequence.tokens
        self.logprobs[row, context : context + sampled] = sequence.logprobs
        self.entropies[row, context : context + sampled] = sequence.entropies
        self.size[row], self.filled[row], self.context[row] = context + sampled, filled, context
        self.limit[row] = min(context + request.max_tokens, self.capacity)
        self.origin[row] = context - request.resumed_tokens
        self.seed[row] = request.seed
        self.temperature[row], self.top_k[row] = request.temperature, request.top_k
        self.top_p[row], self.min_p[row] = request.top_p, request.min_p
        self.stops[row] = -1
        self.stops[row, : len(request.stop_tokens)] = request.stop_tokens
        sequence.row = row
        self._own(row, sequence)

    def sampled(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Copies of the tokens, logprobs and entropies that were sampled in this row, each [n]."""
        start, end = int(self.context[row]), int(self.size[row])
        return tuple(array[row, start:end].copy() for array in (self.tokens, self.logprobs, self.entropies))

    def keep(self, row: int, sequence: Sequence) -> None:
        """Keeps the row of an ended sequence for its trajectory's next turn, in place of a row that was kept before."""
        self.drop(sequence.request.trajectory)
        self._clock += 1
        kept = Kept(sequence.request.trajectory, sequence.group, row, self._clock)
        sequence.row = None
        self.size[row] = self.filled[row]
        self.tables.trim(row, int(self.filled[row]))
        self._own(row, kept)
        self.kept[kept.trajectory] = kept

    def free(self, row: int) -> None:
        self.tables.trim(row, 0)
        self._disown(row)

    def _disown(self, row: int) -> None:
        owner = self.owner[row]
        if isinstance(owner, Kept):
            del self.kept[owner.trajectory]
        elif owner is not None:
            owner.row = None
        self._own(row, None)

    def drop(self, trajectory: str) -> None:
        """Frees the row that is kept for a trajectory, if there is one."""
        kept = self.kept.get(trajectory)
        if kept is not None:
            self.free(kept.row)

    def take(self, kept: Kept) -> int:
        """Ends the keeping of a trajectory without freeing its row's blocks. Returns the row's number."""
        self._disown(kept.row)
        return kept.row

    def _own(self, row: int, owner: Sequence | Kept | None) -> None:
        before = self.owner[row]
        if before is not None and before.group is not None:
            members = self.groups[before.group]
            members.discard(row)
            if not members:
                del self.groups[before.group]
        if owner is not None and owner.group is not None:
            self.groups.setdefault(owner.group, set()).add(row)
        self.owner[row] = owner
        self._running = None

    # ---- making room ----
    def evict_one(self, even_awaited: bool) -> bool:
        """Evicts the least recently used kept trajectory that no request waits for. even_awaited: if there is none,
        evicts one that a request waits for. Returns False if there is nothing to evict.
        """
        candidates = [kept for kept in self.kept.values() if even_awaited or not kept.waiters]
        if not candidates:
            return False
        self.free(min(candidates, key=lambda kept: (kept.waiters > 0, kept.used_at)).row)
        return True

    def make_room(self, blocks: int, even_awaited: bool) -> bool:
        """Evicts kept trajectories until `blocks` more blocks fit; with `even_awaited` also those that a request waits
        for. Returns False, with nothing evicted, if the blocks cannot fit.
        """
        used = self.running_blocks() + self.kept_blocks()
        evictable = self.kept_blocks() if even_awaited else self.kept_blocks(awaited=False)
        if used - evictable + blocks > self.total_blocks:
            return False
        while self.running_blocks() + self.kept_blocks() + blocks > self.total_blocks:
            self.evict_one(even_awaited)
        return True

    def shrink(self, preempt: Callable[[Sequence], None]) -> None:
        """Before a forward pass, brings the blocks in use down to the budget: evicts kept trajectories, then preempts
        running sequences, the last in order (priority, arrival) first.
        """
        while self.running_blocks() + self.kept_blocks() > self.total_blocks:
            if self.evict_one(even_awaited=True):
                continue
            victims = [self.owner[row] for row in self.running]
            preempt(max(victims, key=lambda sequence: sequence.order))
