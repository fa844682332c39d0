"""Admission: refuses requests that can never be served, and gives a waiting sequence a row of the KV storage.

In: a request or a waiting sequence, the ledger. Out: a refusal, or a row.
A row is the storage of one sequence's keys and values.
Invariant: after an admission, the KV budget still has room for one more block of each sequence that ran before, so the
new sequence is not preempted at once. A sequence that runs alone may use the whole budget.
"""

from __future__ import annotations

import numpy as np

from .ledger import MAX_STOPS, Ledger
from .requests import Request, Sequence

BAD_COUNTS = "expected a context of at least one token, resumed_tokens from 0 to the context's length, and max_tokens of at least 1"


def refusal(request: Request, ledger: Ledger, vocabulary: int) -> tuple[str, str] | None:
    """Returns (error code, message) if the engine can never serve this request, else None."""
    n = len(request.context)
    tokens = request.context
    if n == 0 or request.max_tokens < 1 or not 0 <= request.resumed_tokens <= n:
        return "engine.bad_request", f"context of {n} tokens, resumed_tokens {request.resumed_tokens}, max_tokens {request.max_tokens}: " + BAD_COUNTS
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        return "engine.bad_request", f"a token id of the context is outside the model's vocabulary, 0..{vocabulary - 1}"
    if len(request.stop_tokens) > MAX_STOPS:
        return "engine.bad_request", f"the request has {len(request.stop_tokens)} stop tokens; an engine takes at most {MAX_STOPS}"
    options = (request.temperature, request.top_p, request.min_p)
    if not (np.isfinite(options).all() and request.temperature >= 0 and 0 < request.top_p <= 1):
        return "engine.bad_request", f"temperature {request.temperature} must be at least 0, and top_p {request.top_p} in (0, 1]"
    if not 0 <= request.min_p <= 1 or request.top_k < 0:
        return "engine.bad_request", f"min_p {request.min_p} must be in [0, 1], and top_k {request.top_k} at least 0"
    if n + 1 > ledger.capacity:
        return "engine.context_exceeded", f"a context of {n} tokens and one more do not fit the engine's context of {ledger.capacity}"
    if ledger.blocks(n + 1) > ledger.total_blocks:
        return "engine.context_exceeded", f"a context of {n} tokens and one more do not fit the KV budget of {ledger.total_blocks} blocks"
    return None


def place(sequence: Sequence, ledger: Ledger) -> int | None:
    """Gives a sequence a row: the row that is kept for its trajectory, else a free one. If room is needed, evicts kept
    rows; those that a waiting request will continue (the trajectory's own is one) are evicted last.

    Returns the number of the sequence's tokens whose keys are already in the row, or None if the sequence does not fit.
    """
    request = sequence.request
    size = len(request.context) + len(sequence.tokens)
    kept = ledger.kept.get(request.trajectory)
    reuse = own = 0
    if kept is not None:
        filled = int(ledger.filled[kept.row])
        reuse, own = common_prefix(ledger.tokens[kept.row, :filled], request.context), ledger.blocks(filled)
    running = len(ledger.running)
    # Reserves one more block for each running sequence: without it the new sequence would be preempted at once. A
    # sequence that would run alone may use the whole budget.
    need = ledger.blocks(size + 1) + running - own
    if kept is not None:
        kept.waiters += 1  # the trajectory's own kept row counts as awaited, and these are evicted last
    fits = ledger.make_room(need, even_awaited=running == 0)
    if not fits and running == 0:
        fits = ledger.make_room(ledger.blocks(size) - own, even_awaited=True)
    kept = ledger.kept.get(request.trajectory)
    if kept is not None:
        kept.waiters -= 1
    if not fits:
        return None
    if kept is not None:
        row = ledger.take(kept)
    else:
        reuse = 0
        found = ledger.free_row()
        if found is None:
            ledger.evict_one(even_awaited=True)
            found = ledger.free_row()
        if found is None:
            return None
        row = found
    reuse = min(reuse, size - 1)
    ledger.place(sequence, row, reuse)
    sequence.shared = reuse > 0
    sequence.waited = 0
    return reuse


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the common prefix of two token sequences, int32 [n] and [m]."""
    n = min(len(a), len(b))
    if n and np.array_equal(a[:n], b[:n]):
        return n
    different = np.nonzero(a[:n] != b[:n])[0]
    return int(different[0]) if len(different) else n
