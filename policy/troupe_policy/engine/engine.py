"""The engine: continuous batching of many sequences over one model.

in   requests, aborts, releases, new weights, from any thread     out  events, a batch an iteration, on its own thread
An iteration: take what came in, admit by priority, prefill what lacks keys, decode one token for every ready row.
Invariant: a token is sampled from a decode of the token before it, with a random number that depends on the request's
seed and the token's position alone. What is preempted keeps its tokens; only its keys are computed again.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .admission import place, refusal
from .compact import compact
from .decode import Decode
from .forward import Forward
from .inbox import Inbox
from .ledger import Ledger
from .prefill import Prefill
from .requests import Event, Finished, Partial, Refused, Request, Sequence
from .kv import KvRows
from .loaded_model import LoadedModel, update_weights

FIXED_WIDTH_STEP = 32


@dataclass(frozen=True)
class EngineOptions:
    """kv_tokens: budget of running and kept sequences together, rounded down to blocks.

    max_sequences: rows decoded at once. context_tokens: prompt and response together, 0: what the model knows, at most
    4096. prefill_tokens: padded tokens of one prefill. max_waiting: more are refused. deterministic: bit-equal answers.
    entropies: of the distributions that tokens are drawn from, with the logprobs.
    """

    kv_tokens: int = 65536
    block_tokens: int = 16
    max_sequences: int = 128
    context_tokens: int = 0
    prefill_tokens: int = 4096
    max_waiting: int = 4096
    deterministic: bool = False
    entropies: bool = False
    version: int = 0


class Engine:
    def __init__(
        self,
        loaded: LoadedModel,
        options: EngineOptions,
        on_events: Callable[[list[tuple[Any, Event]]], None],
    ) -> None:
        self.loaded, self.options = loaded, options
        known = loaded.positions
        self.context_tokens = min(options.context_tokens or min(known, 4096), known)
        capacity = -(-self.context_tokens // 32) * 32
        kept_rows = max(options.max_sequences, options.kv_tokens // max(1, self.context_tokens))
        rows = options.max_sequences + kept_rows
        self.ledger = Ledger(
            rows, self.context_tokens, options.block_tokens, options.kv_tokens, options.entropies
        )
        self._store = KvRows(loaded.shapes, rows, capacity, loaded.dtype, loaded.device)
        forward = Forward(loaded, self._store)
        self._prefill = Prefill(
            self.ledger, self._store, forward, options.prefill_tokens, copies=not options.deterministic
        )
        self._on_events = on_events
        self._events: list[tuple[Any, Event]] = []
        self._inbox = Inbox()
        self._closed = False
        self._waiting: list[tuple[tuple[int, int], Sequence]] = []
        self._live: dict[tuple[int, str], Sequence] = {}
        self._arrivals = 0
        width = -(-options.max_sequences // FIXED_WIDTH_STEP) * FIXED_WIDTH_STEP
        self._decode = Decode(self.ledger, forward, self._prefill, width, options.entropies)
        self.version = options.version
        self.generated_tokens = self.preemptions = 0
        self.busy_ms = 0.0

    @property
    def prefilled_tokens(self) -> int:
        return self._prefill.computed

    # ---- from any thread ----
    def submit(self, request: Request, sink: Any = None) -> None:
        self._inbox.post(lambda: self._submit(request, sink))

    def abort(self, request_id: str, sink: Any = None) -> None:
        self._inbox.post(lambda: self._abort(self._live.get((id(sink), request_id))))

    def abort_all(self, sink: Any) -> None:
        """Everything that was asked through `sink`; its answers are not wanted any more."""
        self._inbox.post(lambda: [self._abort(s) for s in list(self._live.values()) if s.sink is sink])

    def release(self, trajectory: str) -> None:
        self._inbox.post(lambda: self.ledger.drop(trajectory))

    def update(self, version: int, directory: str, digest: str, keep_kv: bool) -> Future[float]:
        """Resolves with the seconds it took, or fails with WeightsError and the old weights in place."""
        return self._inbox.ask(lambda: self._update(version, directory, digest, keep_kv))

    def status(self) -> dict[str, float]:
        """Counts as of the last iteration; tokens of whole blocks. Reads only, so it answers during a long forward."""
        for _ in range(8):
            try:
                return self._status()
            except RuntimeError:  # a dictionary changed while the loop went on
                continue
        return self._inbox.ask(self._status).result(timeout=60)

    def close(self) -> None:
        self._closed = True
        self._inbox.wake()

    # ---- the loop ----
    def run(self) -> None:
        """Until `close`; the caller's thread is the engine's."""
        while not self._closed:
            self._inbox.wait(idle=not self.step())

    def step(self) -> bool:
        """One iteration. False when there is nothing left to do."""
        started = time.perf_counter()
        self._inbox.run_all()
        self._admit()
        worked = len(self.ledger.running) > 0
        if worked:
            self.ledger.shrink(self._preempt)
            if self.options.deterministic:
                sampled = self._decode.fixed()
            else:
                self._prefill.run()
                compact(self.ledger, self._store)
                sampled = self._decode.plain()
            if sampled is not None:
                self._append(*sampled)
        if self._events:
            events, self._events = self._events, []
            self._on_events(events)
        if worked:
            self.busy_ms += (time.perf_counter() - started) * 1000
        return worked or bool(self._inbox) or bool(self._waiting)

    # ---- coming and going ----
    def _submit(self, request: Request, sink: Any) -> None:
        refused = refusal(request, self.ledger, self.loaded.vocabulary) or self._not_now(request, sink)
        if refused is not None:
            self._events.append((sink, Refused(request, *refused)))
            return
        self._arrivals += 1
        sequence = Sequence(request, sink, self._arrivals, _now(), self.version)
        self._live[(id(sink), request.request_id)] = sequence
        self._wait(sequence)

    def _wait(self, sequence: Sequence) -> None:
        heapq.heappush(self._waiting, (sequence.order, sequence))
        kept = self.ledger.kept.get(sequence.request.trajectory)
        if kept is not None:
            kept.wanted += 1

    def _not_now(self, request: Request, sink: Any) -> tuple[str, str] | None:
        if (id(sink), request.request_id) in self._live:
            return "engine.bad_request", f"request {request.request_id} is already running"
        if len(self._waiting) >= self.options.max_waiting:
            return "engine.busy", f"{len(self._waiting)} requests are waiting already"
        return None

    def _abort(self, sequence: Sequence | None) -> None:
        if sequence is not None:
            self._finish(sequence, "aborted")

    def _admit(self) -> None:
        ledger = self.ledger
        while self._waiting and len(ledger.running) < self.options.max_sequences:
            _, sequence = self._waiting[0]
            if self._live.get((id(sequence.sink), sequence.request.request_id)) is not sequence:
                heapq.heappop(self._waiting)  # aborted while it waited
                continue
            reused = place(sequence, ledger)
            if reused is None:
                return
            heapq.heappop(self._waiting)
            if sequence.cached_tokens is None:
                sequence.cached_tokens, sequence.started_at = reused, _now()

    def _preempt(self, sequence: Sequence) -> None:
        ledger, row = self.ledger, sequence.row
        if len(ledger.running) == 1:
            self._finish(sequence, "length")  # alone, it has outgrown the whole budget
            return
        start, end = int(ledger.context[row]), int(ledger.size[row])
        sequence.tokens = ledger.tokens[row, start:end].copy()
        sequence.logprobs = ledger.logprobs[row, start:end].copy()
        sequence.entropies = ledger.entropies[row, start:end].copy()
        sequence.preemptions += 1
        self.preemptions += 1
        ledger.free(row)
        self._wait(sequence)

    def _finish(self, sequence: Sequence, how: str) -> None:
        ledger, row, request = self.ledger, sequence.row, sequence.request
        tokens, logprobs, entropies = sequence.tokens, sequence.logprobs, sequence.entropies
        if row is not None:
            start, end = int(ledger.context[row]), int(ledger.size[row])
            tokens, logprobs = ledger.tokens[row, start:end].copy(), ledger.logprobs[row, start:end].copy()
            entropies = ledger.entropies[row, start:end].copy()
            if request.keep and ledger.filled[row] > 0:
                ledger.keep(row, sequence)
            else:
                ledger.free(row)
        else:
            self._unwant(request.trajectory)
        del self._live[(id(sequence.sink), request.request_id)]
        now = _now()
        self._events.append((sequence.sink, Finished(
            request, tokens, logprobs, entropies, how, sequence.segments(len(tokens)), sequence.cached_tokens or 0,
            sequence.preemptions, sequence.queued_at, sequence.started_at or now, sequence.first_token_at or now, now,
        )))  # fmt: skip

    def _unwant(self, trajectory: str) -> None:
        kept = self.ledger.kept.get(trajectory)
        if kept is not None:
            kept.wanted = max(0, kept.wanted - 1)

    def _refuse(self, sequence: Sequence, code: str, message: str) -> None:
        self.ledger.free(sequence.row)
        del self._live[(id(sequence.sink), sequence.request.request_id)]
        self._events.append((sequence.sink, Refused(sequence.request, code, message)))

    # ---- what was sampled ----
    def _append(
        self, rows: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray, entropies: np.ndarray | None
    ) -> None:
        ledger = self.ledger
        if np.isnan(logprobs).any():
            self._drop_not_finite(rows[np.isnan(logprobs)])
            good = ~np.isnan(logprobs)
            rows, tokens, logprobs = rows[good], tokens[good], logprobs[good]
            entropies = None if entropies is None else entropies[good]
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
        if self._streams():
            self._report(rows, tokens)
        for i in np.nonzero(stopped | full)[0]:
            self._finish(ledger.owner[rows[i]], "stop" if stopped[i] else "length")

    def _streams(self) -> bool:
        return any(sequence.request.stream for sequence in self._live.values())

    def _report(self, rows: np.ndarray, tokens: np.ndarray) -> None:
        for row, token in zip(rows, tokens, strict=True):
            sequence = self.ledger.owner[row]
            if sequence.request.stream:
                self._events.append((sequence.sink, Partial(sequence.request, np.array([token], np.int32))))

    def _drop_not_finite(self, rows: np.ndarray) -> None:
        for row in rows:
            self._refuse(self.ledger.owner[row], "engine.not_finite", "the model's logits are not finite")
        # Every kept or shared key may carry the same NaN.
        for trajectory in list(self.ledger.kept):
            self.ledger.drop(trajectory)
        with torch.inference_mode():
            self._store.clear()
        running = self.ledger.running
        self.ledger.filled[running] = 0

    # ---- weights and counts ----
    def _update(self, version: int, directory: str, digest: str, keep_kv: bool) -> float:
        started = time.perf_counter()
        update_weights(self.loaded, directory, digest)
        self.version = version
        ledger = self.ledger
        for sequence in self._live.values():
            row = sequence.row
            sampled = len(sequence.tokens) if row is None else int(ledger.size[row] - ledger.context[row])
            sequence.mark_version(version, sampled)
        if not keep_kv:
            for trajectory in list(ledger.kept):
                ledger.drop(trajectory)
            for row in ledger.running:
                ledger.filled[row] = 0
                ledger.owner[row].shared = False
        return time.perf_counter() - started

    def _status(self) -> dict[str, float]:
        ledger = self.ledger
        block = self.options.block_tokens
        return {
            "version": self.version,
            "kv_tokens": ledger.total_blocks * block,
            "referenced_tokens": (ledger.running_blocks() + ledger.kept_blocks(wanted=True)) * block,
            "cached_tokens": ledger.kept_blocks(wanted=False) * block,
            "running": len(ledger.running),
            "waiting": max(0, len(self._live) - len(ledger.running)),
            "generated_tokens": self.generated_tokens,
            "prefilled_tokens": self.prefilled_tokens,
            "preemptions": self.preemptions,
            "busy_ms": self.busy_ms,
        }


def _now() -> float:
    return time.time() * 1000
