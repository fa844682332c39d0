"""Forward passes of an engine: decode over rows, prefill of several rows at once, and the fixed shape of deterministic
mode.

In: row numbers, positions and tokens as numpy arrays. Out: logits, or nothing when only the cache is filled.
Invariant: in `fixed`, a token's logits and keys depend only on the tokens up to it, to the bit.
"""

from __future__ import annotations

import numpy as np
import torch

from .kv import KvRows, Pass
from .loaded_model import LoadedModel

# Lengths are rounded up to a multiple of this number of tokens, so that allocations of a few sizes are reused.
LENGTH_STEP = 32


class Forward:
    def __init__(self, loaded: LoadedModel, store: KvRows) -> None:
        self._loaded, self._store = loaded, store
        base = loaded.model.base_model
        # The model without its head, for prefills, which need no logits.
        self._body = base if base is not loaded.model else loaded.model

    def decode(self, top: int, tokens: np.ndarray, positions: np.ndarray, active: np.ndarray) -> torch.Tensor:
        """Decodes one token for each of the rows 0 to top - 1. Returns logits [top, vocabulary] in the model's dtype.

        tokens, positions: int [top]; active: bool [top]. Inactive rows are computed, but their keys are not written.
        """
        positions = np.where(active, positions, 0)
        capacity = self._store.capacity
        write = np.where(active, np.arange(top), self._store.scratch)[:, None]
        length = min(capacity, -(-int(positions.max() + 1) // LENGTH_STEP) * LENGTH_STEP)
        out = self._run(self._loaded.model, write, top, positions[:, None], length, tokens[:, None])
        return out.logits[:, -1]

    def prefill(self, rows: np.ndarray, starts: np.ndarray, pieces: list[np.ndarray]) -> None:
        """Writes the keys of pieces[i] (int32 [n]) into row rows[i] from position starts[i] on. Either all starts are 0
        or none is.
        """
        count, width = len(rows), max(len(piece) for piece in pieces)
        capacity = self._store.capacity
        tokens = np.zeros((count, width), np.int64)
        at = np.arange(width)
        real = at[None, :] < np.array([len(piece) for piece in pieces])[:, None]
        tokens[real] = np.concatenate(pieces)
        positions = np.minimum(starts[:, None] + at[None, :], capacity - 1)
        write = np.where(real, rows[:, None], self._store.scratch)
        fresh = bool((starts == 0).all())
        length = width if fresh else min(capacity, -(-int(positions.max() + 1) // LENGTH_STEP) * LENGTH_STEP)
        self._run(self._body, write, None if fresh else rows, positions, length, tokens)

    def fixed(self, rows: np.ndarray, positions: np.ndarray, tokens: np.ndarray, width: int) -> torch.Tensor:
        """Computes any mixture of prefill and decode with one token per line, always `width` lines over the whole
        capacity.

        rows, positions, tokens: int [n], n ≤ width; several lines may belong to one row. Returns logits [width,
        vocabulary].
        """
        def padded(values: np.ndarray, fill: int) -> np.ndarray:
            return np.concatenate([values.astype(np.int64), np.full(width - len(values), fill, np.int64)])

        rows, positions = padded(rows, self._store.scratch), padded(positions, 0)
        tokens = padded(tokens, 0)[:, None]
        out = self._run(self._loaded.model, rows[:, None], rows, positions[:, None], self._store.capacity, tokens)
        return out.logits[:, -1]

    @torch.inference_mode()
    def _run(self, model, write, rows, positions, length, tokens):
        device = self._loaded.device

        def tensor(values: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)

        if isinstance(rows, np.ndarray):
            rows = tensor(rows)
        current = Pass(tensor(write), rows, tensor(positions), length, self._loaded.dtype)
        return self._store.run(model, current, tensor(tokens))
