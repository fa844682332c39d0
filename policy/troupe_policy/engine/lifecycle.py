"""The life of each request in the engine: refused or waiting, admitted, preempted, finished.

In: requests, aborts, sampled tokens, new policy versions. Out: rows (each the storage of one sequence's
keys and values) allocated and freed in the ledger, and events for the callers.
Invariants: a request gets exactly one last event (Finished or Refused), unless the engine stops first. A preempted
sequence keeps its tokens and waits again, and its keys and values are computed again; a sequence that runs alone ends
instead. Methods run on the engine's thread; other threads read counts.
"""

from __future__ import annotations

import heapq
import time
from typing import Any

import numpy as np

from .admission import place, refusal
from .ledger import Ledger
from .options import EngineOptions
from .requests import Event, Finished, Partial, Refused, Request, Sequence


class Lifecycle:
    """All requests that are waiting or running. `version`: policy version that samples now."""

    def __init__(self, ledger: Ledger, options: EngineOptions, vocabulary: int) -> None:
        self._ledger, self._options, self._vocabulary = ledger, options, vocabulary
        self._events: list[tuple[Any, Event]] = []
        self._waiting: list[tuple[tuple[int, int], Sequence]] = []
        self._live: dict[tuple[int, str], Sequence] = {}
        self._arrivals = 0
        self.version = options.version
        self.generated_tokens = self.preemptions = 0

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def waiting(self) -> int:
        """Number of requests that have no row now, preempted ones included."""
        return max(0, len(self._live) - len(self._ledger.running))

    def take_events(self) -> list[tuple[Any, Event]]:
        events, self._events = self._events, []
        return events

    # ---- start and end of requests ----
    def submit(self, request: Request, sink: Any) -> None:
        refused = refusal(request, self._ledger, self._vocabulary) or self._refused_now(request, sink)
        if refused is not None:
            self._events.append((sink, Refused(request, *refused)))
            return
        self._arrivals += 1
        sequence = Sequence(request, sink, self._arrivals, _now(), self.version)
        self._live[(id(sink), request.request_id)] = sequence
        self._wait(sequence)

    def _refused_now(self, request: Request, sink: Any) -> tuple[str, str] | None:
        """(code, message) if the request cannot be accepted at this moment, else None."""
        if (id(sink), request.request_id) in self._live:
            return "engine.bad_request", f"request {request.request_id} is already waiting or running: give every request of a stream an id of its own"
        if len(self._waiting) >= self._options.max_waiting:
            self._drop_aborted()
        if len(self._waiting) >= self._options.max_waiting:
            return "engine.busy", f"the queue of this engine is full ({len(self._waiting)} requests): retry later"
        return None

    def _drop_aborted(self) -> None:
        """Removes aborted requests from the queue: an abort leaves them there until they come to its head."""
        self._waiting = [entry for entry in self._waiting if self._is_live(entry[1])]
        heapq.heapify(self._waiting)

    def _is_live(self, sequence: Sequence) -> bool:
        return self._live.get((id(sequence.sink), sequence.request.request_id)) is sequence

    def _wait(self, sequence: Sequence) -> None:
        heapq.heappush(self._waiting, (sequence.order, sequence))
        kept = self._ledger.kept.get(sequence.request.trajectory)
        if kept is not None:
            kept.waiters += 1

    def abort(self, request_id: str, sink: Any) -> None:
        sequence = self._live.get((id(sink), request_id))
        if sequence is not None:
            self._finish(sequence, "aborted")

    def abort_all(self, sink: Any) -> None:
        for sequence in list(self._live.values()):
            if sequence.sink is sink:
                self._finish(sequence, "aborted")

    def admit(self) -> None:
        """Gives rows to waiting sequences in their order, until one does not fit or max_sequences run."""
        ledger = self._ledger
        while self._waiting and len(ledger.running) < self._options.max_sequences:
            _, sequence = self._waiting[0]
            if not self._is_live(sequence):
                heapq.heappop(self._waiting)  # the request was aborted while it waited
                continue
            reused = place(sequence, ledger)
            if reused is None:
                return
            heapq.heappop(self._waiting)
            if sequence.cached_tokens is None:
                sequence.cached_tokens, sequence.started_at = reused, _now()

    def preempt(self, sequence: Sequence) -> None:
        """Takes a running sequence off its row and queues it again. If it is the only running one, it ends instead
        (finish `length`): nothing else can make room.
        """
        ledger, row = self._ledger, sequence.row
        if len(ledger.running) == 1:
            self._finish(sequence, "length")
            return
        sequence.tokens, sequence.logprobs, sequence.entropies = ledger.sampled(row)
        sequence.preemptions += 1
        self.preemptions += 1
        ledger.free(row)
        self._wait(sequence)

    def _finish(self, sequence: Sequence, how: str) -> None:
        ledger, row, request = self._ledger, sequence.row, sequence.request
        tokens, logprobs, entropies = sequence.tokens, sequence.logprobs, sequence.entropies
        if row is not None:
            tokens, logprobs, entropies = ledger.sampled(row)
            if request.keep and ledger.filled[row] > 0:
                ledger.keep(row, sequence)
            else:
                ledger.free(row)
        else:
            kept = ledger.kept.get(request.trajectory)
            if kept is not None:
                kept.waiters = max(0, kept.waiters - 1)
        del self._live[(id(sequence.sink), request.request_id)]
        now = _now()
        self._events.append((sequence.sink, Finished(
            request, tokens, logprobs, entropies, how, sequence.segments(len(tokens)), sequence.cached_tokens or 0,
            sequence.preemptions, sequence.queued_at, sequence.started_at or now, sequence.first_token_at or now, now,
        )))  # fmt: skip

    def refuse(self, sequence: Sequence, code: str, message: str) -> None:
        """Ends a running sequence with a refusal instead of an answer."""
        self._ledger.free(sequence.row)
        del self._live[(id(sequence.sink), sequence.request.request_id)]
        self._events.append((sequence.sink, Refused(sequence.request, code, message)))

    # ---- tokens and versions ----
    def append(
        self, rows: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray, entropies: np.ndarray | None
    ) -> None:
        """Adds one sampled token to each of `rows`. Finishes the sequences whose token is a stop token, and those that
        reached their limit. Arrays: [rows].
        """
        ledger = self._ledger
        size = ledger.size[rows]
        ledger.tokens[rows, size] = tokens
        ledger.logprobs[rows, size] = logprobs
        if entropies is not None:
            ledger.entropies[rows, size] = entropies
        first = ledger.context[rows] == size
        ledger.filled[rows] = size
        ledger.size[rows] = size + 1
        self.generated_tokens += len(rows)
        stopped = (ledger.stops[rows] == tokens[:, None]).any(1)
        full = size + 1 >= ledger.limit[rows]
        if first.any():
            now = _now()
            for row in rows[first]:
                ledger.owner[row].first_token_at = now
        if any(sequence.request.stream for sequence in self._live.values()):
            self._report(rows, tokens)
        for i in np.nonzero(stopped | full)[0]:
            self._finish(ledger.owner[rows[i]], "stop" if stopped[i] else "length")

    def _report(self, rows: np.ndarray, tokens: np.ndarray) -> None:
        for row, token in zip(rows, tokens, strict=True):
            sequence = self._ledger.owner[row]
            if sequence.request.stream:
                self._events.append((sequence.sink, Partial(sequence.request, np.array([token], np.int32))))

    def start_version(self, version: int) -> None:
        """Sets the policy version that samples the next tokens of every live sequence."""
        self.version = version
        ledger = self._ledger
        for sequence in self._live.values():
            row = sequence.row
            sampled = len(sequence.tokens) if row is None else int(ledger.size[row] - ledger.context[row])
            sequence.mark_version(version, sampled)


def _now() -> float:
    """Current time in milliseconds since 1970."""
    return time.time() * 1000
