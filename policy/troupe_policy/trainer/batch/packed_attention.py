"""Attention over sequences laid end to end in one row: each token sees its own sequence, up to itself.

In: the lengths of the sequences of a pack, longest first. Out: an attention function of transformers' interface.
Invariant: nothing but attention ever computes on padding, and attention on at most a fourth of it: sequences of like length
are attended to together, as rows of one call. No [tokens × tokens] mask is made, unless a layer has a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import AttentionInterface

ATTENTION = "troupe_packed"

# Sequences of one attention call are at least this share of the longest of them.
LIKE_LENGTH = 0.75


class UnsupportedAttention(RuntimeError):
    """A layer attends in a way that is not computed here."""


@dataclass(frozen=True)
class _Rows:
    """Neighbours in the pack that are attended to together, as `count` rows of `longest` tokens."""

    start: int
    end: int
    count: int
    longest: int
    # where in the part of the pack each token of the rows comes from, and where in the rows each token of it is;
    # None where all are of one length
    spread: Tensor | None
    gather: Tensor | None


@dataclass(frozen=True)
class Layout:
    """Which tokens of a pack belong together. Made by `layout_of`."""

    rows: tuple[_Rows, ...]

    def __call__(self) -> None:
        """Takes this layout for every attention from now on: backward passes that compute a layer again need it, too."""
        global _now
        _now = self


_now: Layout | None = None


def layout_of(lengths: Sequence[int], device: torch.device | str) -> Layout:
    """The layout of sequences of these lengths, laid end to end in this order; fastest when longest first."""
    rows: list[_Rows] = []
    start, first = 0, 0
    while first < len(lengths):
        longest, last = lengths[first], first
        while last < len(lengths) and longest * LIKE_LENGTH <= lengths[last] <= longest:
            last += 1
        part = lengths[first:last]
        spread = gather = None
        if any(length != longest for length in part):
            own = torch.tensor(part)[:, None]
            at = torch.arange(longest)[None]
            begins = torch.cumsum(own, 0) - own
            # padding repeats the sequence's last token: no token of the sequence sees it
            spread = (begins + torch.minimum(at, own - 1)).flatten().to(device)
            gather = torch.nonzero((at < own).flatten()).flatten().to(device)
        rows.append(_Rows(start, start + sum(part), len(part), longest, spread, gather))
        start, first = start + sum(part), last
    return Layout(tuple(rows))


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
    """query [1, heads, tokens, dim]; key, value [1, kv_heads, tokens, dim] → [1, tokens, heads, dim]."""
    if _now is None:
        raise UnsupportedAttention("no pack is laid out")
    if options.get("softcap") is not None or options.get("s_aux") is not None or attention_mask is not None:
        raise UnsupportedAttention("attention with soft capping, sinks or a mask of its own is not packed")
    window = options.get("sliding_window")
    groups = query.shape[1] // key.shape[1]
    outputs = []
    for rows in _now.rows:
        q, k, v = (_spread(rows, tensor[0]) for tensor in (query, key, value))
        limits: dict[str, object] = {"is_causal": True}
        if window is not None and window < rows.longest:
            at = torch.arange(rows.longest, device=query.device)
            limits = {"attn_mask": (at[None] <= at[:, None]) & (at[None] > at[:, None] - window)}
        out = scaled_dot_product_attention(q, k, v, scale=scaling, enable_gqa=groups > 1, **limits)
        out = out.transpose(1, 2).flatten(0, 1)
        outputs.append(out if rows.gather is None else out.index_select(0, rows.gather))
    return torch.cat(outputs)[None], None


def _spread(rows: _Rows, tensor: Tensor) -> Tensor:
    """[heads, tokens, dim] → [count, heads, longest, dim]."""
    part = tensor[:, rows.start : rows.end]
    if rows.spread is not None:
        part = part.index_select(1, rows.spread)
    return part.view(part.shape[0], rows.count, rows.longest, part.shape[-1]).transpose(0, 1)


AttentionInterface.register(ATTENTION, attend)
