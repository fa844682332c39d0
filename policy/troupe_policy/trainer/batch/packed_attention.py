"""Attention over sequences laid end to end in one row (a pack): each token sees its own sequence, up to itself.

In: the lengths of a pack's sequences, longest first. Out: an attention function with transformers' interface.
Invariants: only attention computes on padding, and at most a fourth of its tokens are padding, because only sequences
of similar length are rows of one call. No mask over pairs of tokens is made, except [longest × longest] of a call's
rows in a layer with a sliding window.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import AttentionInterface

ATTENTION = "troupe_packed"

# Lower bound on a sequence's length in an attention call, as a share of the longest sequence in that call.
SIMILAR_LENGTH = 0.75


class UnsupportedAttention(RuntimeError):
    """A layer uses a kind of attention that packing does not support."""


@dataclass(frozen=True)
class _Rows:
    """Neighbouring sequences, tokens start to end - 1 of the pack, that share an attention call as `count` rows of
    `longest` tokens.
    """

    start: int
    end: int
    count: int
    longest: int
    # spread: for each token of the rows, its index in this part of the pack. gather: for each token of the part, its
    # index in the rows. int64; None if all sequences have one length.
    spread: Tensor | None
    gather: Tensor | None


@dataclass(frozen=True)
class Layout:
    """Layout of a pack: which of its tokens belong to one sequence. Made by `layout_of`."""

    rows: tuple[_Rows, ...]
    lengths: tuple[int, ...]
    _kept: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def longest(self) -> int:
        return max(self.lengths)

    def ends(self, device: torch.device) -> Tensor:
        """Index of each sequence's first token, then the number of tokens in the pack: int32 [sequences + 1]."""
        make = lambda: torch.tensor([0, *self.lengths]).cumsum(0).to(device, torch.int32)  # noqa: E731
        return self.kept("ends", make)

    def owners(self, device: torch.device) -> Tensor:
        """The number of each token's sequence: int64 [tokens]."""
        make = lambda: torch.arange(len(self.lengths)).repeat_interleave(torch.tensor(self.lengths)).to(device)  # noqa: E731
        return self.kept("owners", make)

    def kept(self, key: object, make: Callable[[], Any]) -> Any:
        """Returns the value stored under `key`; `make` makes it at the first call, and later layers use it again."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def activate(self) -> None:
        """Makes this the layout of this thread's attention calls until it activates another. It must still be active in
        a backward pass that computes a layer again.
        """
        global _latest
        _active.layout = _latest = self


class _Active(threading.local):
    """The layout that this thread activated last."""

    layout: Layout | None = None


_active = _Active()
# The layout that any thread activated last: a GPU's backward pass runs in a thread of autograd's own.
_latest: Layout | None = None


def layout_of(lengths: Sequence[int], device: torch.device | str) -> Layout:
    """Makes the layout of sequences with these lengths, laid end to end in this order. Attention is fastest with the
    longest first.
    """
    rows: list[_Rows] = []
    start, first = 0, 0
    while first < len(lengths):
        longest, last = lengths[first], first
        while last < len(lengths) and longest * SIMILAR_LENGTH <= lengths[last] <= longest:
            last += 1
        part = lengths[first:last]
        spread = gather = None
        if any(length != longest for length in part):
            own = torch.tensor(part)[:, None]
            at = torch.arange(longest)[None]
            begins = torch.cumsum(own, 0) - own
            # Padding repeats the sequence's last token; no token of the sequence attends to it.
            spread = (begins + torch.minimum(at, own - 1)).flatten().to(device)
            gather = torch.nonzero((at < own).flatten()).flatten().to(device)
        rows.append(_Rows(start, start + sum(part), len(part), longest, spread, gather))
        start, first = start + sum(part), last
    return Layout(tuple(rows), tuple(lengths))


def active_layout(options: Mapping[str, Any], attention_mask: Tensor | None) -> Layout:
    """The layout of this attention call. Raises UnsupportedAttention if no layout is active, or if the layer asks for
    soft capping, sinks or a mask of its own."""
    layout = _active.layout or _latest
    if layout is None:
        raise UnsupportedAttention("no layout is active: call Layout.activate before the forward pass")
    if options.get("softcap") is not None or options.get("s_aux") is not None or attention_mask is not None:
        raise UnsupportedAttention("packing does not support attention with soft capping, sinks or a mask of its own")
    return layout


@torch.compiler.disable  # every pack has another layout, and each would be compiled anew
def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
    """Attention within each sequence of the active layout. query [1, heads, tokens, dim]; key, value [1, kv_heads,
    tokens, dim] → [1, tokens, heads, dim].
    """
    layout = active_layout(options, attention_mask)
    window = options.get("sliding_window")
    groups = query.shape[1] // key.shape[1]
    outputs = []
    for rows in layout.rows:
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
    """Arranges a part of the pack as padded rows: [heads, tokens, dim] → [count, heads, longest, dim]."""
    part = tensor[:, rows.start : rows.end]
    if rows.spread is not None:
        part = part.index_select(1, rows.spread)
    return part.view(part.shape[0], rows.count, rows.longest, part.shape[-1]).transpose(0, 1)


AttentionInterface.register(ATTENTION, attend)
