"""Keeps running rows together: a decode runs over the rows up to the highest one, idle ones among them for nothing.

in   the ledger, the KV storage       out  the same sequences in lower rows
Invariant: tokens, keys and values of a sequence move together.
"""

from __future__ import annotations

import numpy as np
import torch

from .ledger import Kept, Ledger
from .kv import KvRows


def compact(ledger: Ledger, store: KvRows) -> None:
    """Moves the highest rows into gaps when a decode over 0..top would compute too many rows for nothing."""
    running = ledger.running
    while len(running) and running[-1] + 1 - len(running) > max(2, len(running) // 4):
        high = int(running[-1])
        low = int(np.setdiff1d(np.arange(high), running)[0])
        with torch.inference_mode():
            if isinstance(ledger.owner[low], Kept):
                _swap_kept(ledger, store, low, high)
            else:
                store.copy(high, low, int(ledger.filled[high]))
                ledger.move(high, low)
        running = ledger.running


def _swap_kept(ledger: Ledger, store: KvRows, low: int, high: int) -> None:
    """Swaps a kept row with a running one, through scratch."""
    length = int(ledger.filled[low])
    store.copy(low, store.scratch, length)
    kept, tokens = ledger.lift(low)
    store.copy(high, low, int(ledger.filled[high]))
    ledger.move(high, low)
    store.copy(store.scratch, high, length)
    ledger.settle(kept, high, tokens)
