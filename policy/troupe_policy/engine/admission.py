"""Whether a request can be served at all, and where in the KV storage it goes when its turn has come.

in   a request or a waiting sequence, the ledger       out  a refusal, or a row
Invariant: what is admitted fits the budget together with one more block for each that runs already, so a newcomer is
not preempted at once.
"""

from __future__ import annotations

import numpy as np

from .ledger import MAX_STOPS, Ledger
from .requests import Request, Sequence


def refusal(request: Request, ledger: Ledger, vocabulary: int) -> tuple[str, str] | None:
    """(code, message) where a request can never be served."""
    n = len(request.context)
    tokens = request.context
    if n == 0 or request.max_tokens < 1 or not 0 <= request.resumed_tokens <= n:
        return "engine.bad_request", f"context of {n} tokens, max_tokens {request.max_tokens}"
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        return "engine.bad_request", f"a token id is outside 0..{vocabulary - 1}"
    if len(request.stop_tokens) > MAX_STOPS:
        return "engine.bad_request", f"{len(request.stop_tokens)} stop tokens, at most {MAX_STOPS}"
    options = (request.temperature, request.top_p, request.min_p)
    if not (np.isfinite(options).all() and request.temperature >= 0 and 0 < request.top_p <= 1):
        return "engine.bad_request", f"temperature {request.temperature}, top_p {request.top_p}"
    if not 0 <= request.min_p <= 1 or request.top_k < 0:
        return "engine.bad_request", f"min_p {request.min_p}, top_k {request.top_k}"
    if n + 1 > ledger.capacity:
        return "engine.context_exceeded", f"{n} tokens do not fit a context of {ledger.capacity}"
    if ledger.blocks(n + 1) > ledger.total_blocks:
        return "engine.context_exceeded", f"{n} tokens do not fit the KV budget of {ledger.total_blocks} blocks"
    return None


def place(sequence: Sequence, ledger: Ledger) -> int | None:
    """Gives a sequence a row: the one where its trajectory was kept, or a free one.

    Returns how many of its tokens have their keys already; None, with nothing changed but evictions, where none fits.
    """
    request = sequence.request
    size = len(request.context) + len(sequence.tokens)
    kept = ledger.kept.get(request.trajectory)
    reuse = own = 0
    if kept is not None:
        filled = int(ledger.filled[kept.row])
        reuse, own = common_prefix(ledger.tokens[kept.row, :filled], request.context), ledger.blocks(filled)
    running = len(ledger.running)
    # One more block for each that runs, or the newcomer would be preempted at once. Alone, it may use everything.
    need = ledger.blocks(size + 1) + running - own
    if kept is not None:
        kept.wanted += 1  # not its own victim
    fits = ledger.make_room(need, even_wanted=running == 0)
    if not fits and running == 0:
        fits = ledger.make_room(ledger.blocks(size) - own, even_wanted=True)
    kept = ledger.kept.get(request.trajectory)
    if kept is not None:
        kept.wanted -= 1
    if not fits:
        return None
    if kept is not None:
        row = ledger.take(kept)
    else:
        reuse = 0
        found = ledger.free_row()
        if found is None:
            ledger.evict_one(even_wanted=True)
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
    """How many tokens two sequences begin with alike."""
    n = min(len(a), len(b))
    if n and np.array_equal(a[:n], b[:n]):
        return n
    different = np.nonzero(a[:n] != b[:n])[0]
    return int(different[0]) if len(different) else n
