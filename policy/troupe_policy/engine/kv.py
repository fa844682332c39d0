"""KV storage: one row per sequence, allocated once, plugged into transformers as a `Cache` and an attention function.

In: a `Pass`, which gives the row and position of each token of a forward pass. Out: keys and values written in place,
and attention over rows with our mask instead of the model's.
Invariants: no forward pass concatenates or reallocates a cache. Positions beyond a row's length are never attended
to.

Keys and values of a layer are [rows + 1, heads, capacity, dim]; the last row is scratch, into which padding is
written. A decode over the rows 0 to n - 1 is a view of that storage. On Linux, pages that were never written take no
memory.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache
from transformers.modeling_utils import AttentionInterface

from ..model.unsupported import UnsupportedModel

ATTENTION = "troupe_rows"
_local = threading.local()


@dataclass
class Pass:
    """One forward pass over [b, t] tokens.

    write: int64 [b, t], the row into which each token's keys are written, at its position.
    rows: the rows that are attended to: None when the tokens attend only to one another, an int n for the rows 0 to n - 1 in
        order, or int64 [b].
    positions: int64 [b, t]; a token attends to positions up to its own.
    length: positions 0 to length - 1 of a row are read.
    """

    write: torch.Tensor
    rows: torch.Tensor | int | None
    positions: torch.Tensor
    length: int
    dtype: torch.dtype
    _bias: dict[int | None, torch.Tensor] = field(default_factory=dict)
    _targets: dict[int, torch.Tensor] = field(default_factory=dict)

    def targets(self, heads: int, capacity: int) -> torch.Tensor:
        """Indices of keys [b, heads, t, dim] in storage viewed as [rows · heads · capacity, dim]: int64 [b · heads · t]."""
        found = self._targets.get(heads)
        if found is None:
            head = torch.arange(heads, device=self.write.device)[:, None]
            found = ((self.write[:, None] * heads + head) * capacity + self.positions[:, None]).view(-1)
            self._targets[heads] = found
        return found

    def bias(self, window: int | None) -> torch.Tensor:
        """Attention mask [b, 1, t, length] in `dtype`: 0 where a token may attend, -inf elsewhere."""
        found = self._bias.get(window)
        if found is None:
            at = torch.arange(self.length, device=self.positions.device)
            here = self.positions[:, None, :, None]
            visible = at <= here
            if window is not None:
                visible &= at > here - window
            found = torch.zeros(visible.shape, dtype=self.dtype, device=visible.device)
            found.masked_fill_(~visible, float("-inf"))
            self._bias[window] = found
        return found


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
    """Attention of the current pass. query [b, heads, t, dim]; key, value [b, kv_heads, length, dim] → [b, t, heads, dim], None."""
    current: Pass = _local.current
    if options.get("softcap") is not None or options.get("s_aux") is not None:
        raise UnsupportedModel("the engine does not support attention with soft capping or sinks: use vllm or sglang for this model")
    window = options.get("sliding_window")
    batch, heads, width, dim = query.shape
    groups = heads // key.shape[1]
    if current.rows is None and (window is None or window >= width):
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=groups > 1)
    elif width == 1:
        # Query heads that share a key head become queries of that one head, so no key is repeated.
        grouped = query.reshape(batch, key.shape[1], groups, dim)
        if isinstance(current.rows, int) and query.device.type == "cpu" and query.dtype == torch.float32:
            out = _decode_on_cpu(grouped, key, value, current.bias(window), dim**-0.5 if scaling is None else scaling)
        else:
            out = scaled_dot_product_attention(grouped, key, value, attn_mask=current.bias(window), scale=scaling)
        return out.reshape(batch, 1, heads, value.shape[-1]), None
    else:
        out = scaled_dot_product_attention(
            query, key, value, attn_mask=current.bias(window), scale=scaling, enable_gqa=groups > 1
        )
    return out.transpose(1, 2).contiguous(), None


def _decode_on_cpu(query, key, value, bias, scaling: float) -> torch.Tensor:
    """Attention of few queries [b, kv_heads, groups, dim] on many keys: two batched products are faster than the fused
    kernel on a CPU.
    """
    batch, heads, groups, dim = query.shape
    keys, values = key.flatten(0, 1), value.flatten(0, 1)
    length = keys.shape[1]
    scores = bias.expand(batch, heads, groups, length).reshape(batch * heads, groups, length)
    scores = torch.baddbmm(scores, query.reshape(batch * heads, groups, dim), keys.transpose(1, 2), alpha=scaling)
    return torch.bmm(torch.softmax(scores, -1), values).view(batch, heads, groups, -1)


AttentionInterface.register(ATTENTION, attend)


class KvRows(Cache):
    """Storage of the keys and values of all layers. shapes: (kv heads, key dim, value dim) of each layer."""

    def __init__(
        self,
        shapes: list[tuple[int, int, int]],
        rows: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__(layers=[])
        self.rows, self.capacity, self.dtype, self.device = rows, capacity, dtype, device
        self._whole: torch.Tensor | None = None
        self._gathered: list[torch.Tensor | None] = [None, None]
        if all(shape == shapes[0] and shape[1] == shape[2] for shape in shapes):
            heads, dim, _ = shapes[0]
            self._whole = _zeros((len(shapes), 2, rows + 1, heads, capacity, dim), dtype, device)
            self.keys = [self._whole[layer, 0] for layer in range(len(shapes))]
            self.values = [self._whole[layer, 1] for layer in range(len(shapes))]
        else:
            self.keys = [_zeros((rows + 1, heads, capacity, key), dtype, device) for heads, key, _ in shapes]
            self.values = [_zeros((rows + 1, heads, capacity, value), dtype, device) for heads, _, value in shapes]
        self._flat_keys = [store.view(-1, store.shape[-1]) for store in self.keys]
        self._flat_values = [store.view(-1, store.shape[-1]) for store in self.values]

    @property
    def scratch(self) -> int:
        """Number of the scratch row, into which padding is written. Only the unused lines of `Forward.fixed` attend to
        it, and nobody uses their logits.
        """
        return self.rows

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        """Writes the new keys and values [b, heads, t, dim] of a layer, and returns those to attend to. transformers
        calls it in each layer.
        """
        current: Pass = _local.current
        targets = current.targets(key_states.shape[1], self.capacity)
        for flat, new in ((self._flat_keys[layer_idx], key_states), (self._flat_values[layer_idx], value_states)):
            flat.index_copy_(0, targets, new.reshape(-1, flat.shape[-1]))
        if current.rows is None:
            return key_states, value_states
        keys, values = self.keys[layer_idx][:, :, : current.length], self.values[layer_idx][:, :, : current.length]
        if isinstance(current.rows, int):
            return keys[: current.rows], values[: current.rows]
        return self._gather(keys, current.rows, 0), self._gather(values, current.rows, 1)

    def _gather(self, store: torch.Tensor, rows: torch.Tensor, which: int) -> torch.Tensor:
        """Rows of keys (0) or values (1), copied into a buffer that every layer reuses: allocating new pages would cost
        more than the copy.
        """
        shape = (len(rows), *store.shape[1:])
        size = int(np.prod(shape))
        if self._gathered[which] is None or self._gathered[which].numel() < size:
            self._gathered[which] = torch.empty(size, dtype=self.dtype, device=self.device)
        return torch.index_select(store, 0, rows, out=self._gathered[which][:size].view(shape))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def copy(self, source: int, target: int, length: int) -> None:
        """Copies the first `length` positions of row `source` to row `target`, in all layers."""
        if self._whole is not None:
            self._whole[:, :, target, :, :length].copy_(self._whole[:, :, source, :, :length])
            return
        for store in (*self.keys, *self.values):
            store[target, :, :length].copy_(store[source, :, :length])

    def clear(self) -> None:
        """Zeroes all keys and values: even a masked NaN would turn a sum into NaN."""
        for store in (*self.keys, *self.values):
            store.zero_()

    def run(self, model: torch.nn.Module, current: Pass, tokens: torch.Tensor):
        """Runs the model on tokens int64 [b, t] of one pass and returns its output."""
        _local.current = current
        try:
            return model(input_ids=tokens, position_ids=current.positions, past_key_values=self, use_cache=True)
        finally:
            _local.current = None


class ShapeProbe(Cache):
    """Reads the shapes of a model's keys and values from one forward pass, since configs name them differently."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: dict[int, tuple[int, int, int]] = {}

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        self.shapes[layer_idx] = (key_states.shape[1], key_states.shape[3], value_states.shape[3])
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


def probe_shapes(model: torch.nn.Module, device: torch.device) -> list[tuple[int, int, int]]:
    """(kv heads, key dim, value dim) of each layer. Raises UnsupportedModel if a layer does not use a Cache."""
    probe = ShapeProbe()
    zero = torch.zeros((1, 1), dtype=torch.long, device=device)
    _local.current = Pass(zero, None, zero, 1, next(model.parameters()).dtype)
    try:
        model(input_ids=zero, position_ids=zero, past_key_values=probe, use_cache=True)
    finally:
        _local.current = None
    layers = sorted(probe.shapes)
    if not layers or layers != list(range(len(layers))):
        raise UnsupportedModel("a layer of the model does not keep its keys and values in a transformers Cache: use vllm or sglang for this model")
    return [probe.shapes[layer] for layer in layers]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros uses calloc: the kernel zeroes a page when it is first written; torch.zeros would write all pages
    # now.
    size = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, np.uint8)).view(dtype).view(shape)
