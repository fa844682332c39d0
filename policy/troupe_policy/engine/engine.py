"""The engine: continuous batching of many sequences over one model.

In: requests, aborts, releases and new weights, from any thread. Out: events, one batch per iteration, on the engine's
thread. An iteration runs the posted actions, admits waiting sequences by priority, prefills missing keys, and decodes
one token for every ready row.
Invariants: each token is sampled from a decode of the token before it, with a random number that depends only on the
request's seed and the token's index in its turn. A preempted sequence keeps its tokens; only its keys are computed
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from .decode import Decode
from .forward import Forward
from .inbox import Inbox
from .kv import KvBlocks
from .ledger import Ledger
from .lifecycle import Lifecycle
from .loaded_model import LoadedModel, update_weights
from .options import EngineOptions
from .prefill import Prefill
from .requests import Event, Request

# Upper bound on the context in tokens if the options set none; a model whose own bound is smaller keeps its own.
DEFAULT_CONTEXT_TOKENS = 4096
# The number of lines (one token each) of a forward pass in deterministic mode is a multiple of this.
FIXED_WIDTH_STEP = 32


class Engine:
    """on_events: receives [(sink, event)] on the engine's thread, once for each iteration that has events. A sink
    identifies the caller that sent the request.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        options: EngineOptions,
        on_events: Callable[[list[tuple[Any, Event]]], None],
    ) -> None:
        self.loaded, self.options = loaded, options
        positions = loaded.positions
        self.context_tokens = min(options.context_tokens or min(positions, DEFAULT_CONTEXT_TOKENS), positions)
        kept_rows = max(options.max_sequences, options.kv_tokens // max(1, self.context_tokens))
        rows = options.max_sequences + kept_rows
        self.ledger = Ledger(
            rows, self.context_tokens, options.block_tokens, options.kv_tokens, options.entropies
        )
        blocks, tables = self.ledger.total_blocks, self.ledger.tables
        self._store = KvBlocks(loaded.shapes, blocks, options.block_tokens, loaded.dtype, loaded.device)
        forward = Forward(loaded, self._store, tables)
        self._prefill = Prefill(
            self.ledger, self._store, forward, options.prefill_tokens, copies=not options.deterministic
        )
        width = _rounded_up(options.max_sequences, FIXED_WIDTH_STEP)
        self._decode = Decode(self.ledger, forward, self._prefill, width, options.entropies)
        self._lifecycle = Lifecycle(self.ledger, options, loaded.vocabulary)
        self._on_events = on_events
        self._inbox = Inbox()
        self._closed = False
        self.busy_ms = 0.0

    @property
    def version(self) -> int:
        return self._lifecycle.version

    @property
    def prefilled_tokens(self) -> int:
        return self._prefill.computed

    @property
    def preemptions(self) -> int:
        return self._lifecycle.preemptions

    @property
    def reserved_bytes(self) -> int:
        """Bytes of all tensors that hold keys and values: the storage, and the scratch at its largest so far."""
        return self._store.storage_bytes + self._store.scratch_bytes

    # ---- methods that any thread may call ----
    def submit(self, request: Request, sink: Any = None) -> None:
        self._inbox.post(lambda: self._lifecycle.submit(request, sink))

    def abort(self, request_id: str, sink: Any = None) -> None:
        self._inbox.post(lambda: self._lifecycle.abort(request_id, sink))

    def abort_all(self, sink: Any) -> None:
        """Aborts every request that came with `sink`, because nobody reads its events any more."""
        self._inbox.post(lambda: self._lifecycle.abort_all(sink))

    def release(self, trajectory: str) -> None:
        """Frees the keys and values that are kept for a trajectory's next turn."""
        self._inbox.post(lambda: self.ledger.drop(trajectory))

    def update(self, version: int, directory: str, digest: str, keep_kv: bool, manifest: str = "") -> Future[float]:
        """Loads new weights between two iterations. keep_kv: keep the keys and values that older weights computed;
        without it, those of running sequences are computed again, and those kept for later turns are dropped.

        The future resolves with the seconds that the update took, or fails with WeightsError and the old weights in
        place.
        """
        return self._inbox.ask(lambda: self._update(version, directory, digest, keep_kv, manifest))

    def status(self) -> dict[str, float]:
        """Counts at the moment of the call, perhaps in the middle of an iteration; KV tokens in whole blocks. They are
        read on the caller's thread, so that a long forward pass does not delay the answer. If the engine's thread
        changes them during eight reads in a row, they are read on that thread between two iterations; TimeoutError
        after 60 s.
        """
        for _ in range(8):
            try:
                return self._status()
            except RuntimeError:  # the engine's thread changed a dictionary during this read: read again
                continue
        return self._inbox.ask(self._status).result(timeout=60)

    def close(self) -> None:
        self._closed = True
        self._inbox.wake()

    # ---- the loop ----
    def run(self) -> None:
        """Runs iterations on the caller's thread until `close`."""
        while not self._closed:
            self._inbox.wait(idle=not self.step())

    def step(self) -> bool:
        """Runs one iteration. Returns False when there is nothing left to do."""
        started = time.perf_counter()
        self._inbox.run_all()
        self._lifecycle.admit()
        has_rows = len(self.ledger.running) > 0
        if has_rows:
            self.ledger.shrink(self._lifecycle.preempt)
            if self.options.deterministic:
                sampled = self._decode.fixed()
            else:
                self._prefill.run()
                sampled = self._decode.plain()
            if sampled is not None:
                self._append(*sampled)
        events = self._lifecycle.take_events()
        if events:
            self._on_events(events)
        if has_rows:
            self.busy_ms += (time.perf_counter() - started) * 1000
        return has_rows or bool(self._inbox) or self._lifecycle.has_waiting

    def _append(
        self, rows: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray, entropies: np.ndarray | None
    ) -> None:
        """Appends the sampled tokens to their rows. Refuses requests whose logprob is NaN. If there was one, drops all
        kept keys and has those of all running rows computed again.
        """
        good = ~np.isnan(logprobs)
        if good.all():
            self._lifecycle.append(rows, tokens, logprobs, entropies)
            return
        for row in rows[~good]:
            self._lifecycle.refuse(self.ledger.owner[row], "engine.not_finite", "the model's logits are not finite")
        self._lifecycle.append(rows[good], tokens[good], logprobs[good], None if entropies is None else entropies[good])
        # Every kept or shared key may carry the same NaN, so all of them are dropped.
        for trajectory in list(self.ledger.kept):
            self.ledger.drop(trajectory)
        with torch.inference_mode():
            self._store.clear()
        self.ledger.filled[self.ledger.running] = 0

    # ---- weights and counts ----
    def _update(self, version: int, directory: str, digest: str, keep_kv: bool, manifest: str) -> float:
        started = time.perf_counter()
        update_weights(self.loaded, directory, digest, manifest)
        self._lifecycle.start_version(version)
        ledger = self.ledger
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
            "referenced_tokens": (ledger.running_blocks() + ledger.kept_blocks(awaited=True)) * block,
            "cached_tokens": ledger.kept_blocks(awaited=False) * block,
            "running": len(ledger.running),
            "waiting": self._lifecycle.waiting,
            "generated_tokens": self._lifecycle.generated_tokens,
            "prefilled_tokens": self.prefilled_tokens,
            "preemptions": self.preemptions,
            "busy_ms": self.busy_ms,
        }


def _rounded_up(number: int, step: int) -> int:
    return -(-number // step) * step
