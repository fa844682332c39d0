"""Compaction: moves running sequences to low rows, since a decode computes every row up to the highest running one.

In: the ledger, the KV storage. Out: the same sequences in lower rows.
Invariant: tokens, keys and values of a sequence move together.
"""

from __future__ import annotations

import numpy as np
import torch

from .kv import KvRows
from .ledger import Kept, Ledger


def compact(ledger: Ledger, store: KvRows) -> None:
    """Moves running sequences from the highest rows into gaps, while a decode would compute more than 2 idle rows and
    more than a fourth as many idle rows as running ones.
    """
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
    """Swaps a kept row with a running one, by way of the scratch row."""
    length = int(ledger.filled[low])
    store.copy(low, store.scratch, length)
    kept, tokens = ledger.detach(low)
    store.copy(high, low, int(ledger.filled[high]))
    ledger.move(high, low)
    store.copy(store.scratch, high, length)
    ledger.attach(kept, high, tokens)
