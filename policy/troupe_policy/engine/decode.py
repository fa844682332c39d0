"""Decode: one forward pass and one sampled token for every ready row. A row is ready when only its last token lacks
keys.

In: the ledger's running rows (a row is one sequence's place in the KV storage). Out: row numbers; for each row the
sampled token, its log-probability, and on request the entropy of the distribution that it was sampled from.
Invariants: a token's random number depends only on its request's seed and its index in its turn. In deterministic mode
no operation's shape depends on other requests: products with weights and sampling always have the same number of lines,
and attention runs line by line.
"""

from __future__ import annotations

import numpy as np
import torch

from .forward import Forward
from .ledger import Ledger
from .prefill import Prefill
from .sampling import SamplingRows, entropies, sample, uniforms

# Sampled: (rows int64, tokens int64, log-probabilities float32, entropies float32 or None), each [rows]; natural log,
# nats
Sampled = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]


class Decode:
    def __init__(
        self, ledger: Ledger, forward: Forward, prefill: Prefill, width: int, with_entropy: bool = False
    ) -> None:
        """Runs decodes. width: number of lines, one token each, of a forward pass in deterministic mode. with_entropy:
        also compute the sampled distributions' entropies.
        """
        self._ledger, self._forward, self._prefill, self._width = ledger, forward, prefill, width
        self._with_entropy = with_entropy

    def plain(self) -> Sampled | None:
        """Runs one forward pass over the ready rows. Returns None if no row is ready."""
        ledger = self._ledger
        rows = self._ready()
        if not len(rows):
            return None
        last = ledger.size[rows] - 1
        logits = self._forward.decode(rows, ledger.tokens[rows, last], last)
        with torch.inference_mode():
            return rows, *self._draw(logits, rows)

    def fixed(self) -> Sampled | None:
        """Runs one forward pass of `width` lines, for deterministic mode: rows that are ready to decode, then tokens of
        prefills, then idle lines. Returns None if no row is ready to decode, even if the pass computed tokens of
        prefills.
        """
        ledger, width = self._ledger, self._width
        decoding = self._ready()
        lines, positions = [decoding], [ledger.size[decoding] - 1]
        room = width - len(decoding)
        filling: list[tuple[int, int]] = []
        for sequence, count in self._prefill.next_batch(self._prefill.pending(), room):
            count = min(count, room)
            start = int(ledger.filled[sequence.row])
            lines.append(np.full(count, sequence.row))
            positions.append(np.arange(start, start + count))
            filling.append((sequence.row, count))
            room -= count
        all_lines, at = np.concatenate(lines), np.concatenate(positions)
        if not len(all_lines):
            return None
        logits = self._forward.fixed(all_lines, at, ledger.tokens[all_lines, at], width)
        for row, count in filling:
            ledger.filled[row] += count
            self._prefill.computed += count
        if not len(decoding):
            return None
        with torch.inference_mode():
            # The lines that do not decode are sampled too, so that sampling has the same shape in every pass.
            spare = np.zeros(width - len(decoding), np.int64)
            all_rows = np.concatenate([decoding, spare])
            n = len(decoding)
            tokens, logprobs, entropy = self._draw(logits, all_rows)
            return decoding, tokens[:n], logprobs[:n], entropy if entropy is None else entropy[:n]

    def _draw(self, logits: torch.Tensor, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        sampling = self._sampling(rows)
        tokens, logprobs = sample(logits, sampling, self._uniforms(rows))
        entropy = entropies(logits, sampling).cpu().numpy() if self._with_entropy else None
        return tokens.cpu().numpy(), logprobs.cpu().numpy(), entropy

    def _ready(self) -> np.ndarray:
        """Running rows that have the keys of all their tokens but the last."""
        ledger = self._ledger
        rows = ledger.running
        return rows[ledger.filled[rows] == ledger.size[rows] - 1]

    def _sampling(self, rows: np.ndarray) -> SamplingRows:
        ledger = self._ledger
        return SamplingRows(ledger.temperature[rows], ledger.top_k[rows], ledger.top_p[rows], ledger.min_p[rows])

    def _uniforms(self, rows: np.ndarray) -> np.ndarray:
        return uniforms(self._ledger.seed[rows], self._ledger.size[rows] - self._ledger.origin[rows])
