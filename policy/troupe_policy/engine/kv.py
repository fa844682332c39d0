"""KV storage: blocks of keys and values, allocated once, plugged into transformers as a `Cache`.

In: a `Pass`, which gives the slot of each new token and the blocks that the pass reads. Out: keys and values written
in place.
Invariants: the storage holds exactly the blocks of the KV budget, however long the contexts are. Beside it, the scratch
holds copies of blocks of one layer: at most the smaller of 1/16 of the storage and 64 MiB, or one block or all blocks
of one row (sequence) in that layer if that is more. No forward pass reallocates the storage.

Keys and values of a layer are [blocks, heads, block_tokens, dim]. On a CPU under Linux, pages that were never written
take no memory.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers.cache_utils import Cache

from ..model.unsupported import UnsupportedModel

# Upper bounds on the scratch, as a share of the storage and in bytes (64 MiB); the smaller bound applies. A row that is
# larger than the scratch makes the scratch grow to the row's size.
SCRATCH_SHARE = 1 / 16
SCRATCH_BYTES = 64 << 20
_local = threading.local()


@dataclass
class Decode:
    """Blocks 0 to m - 1, which a decode of n rows, one token each, reads in place.

    line: int64 [m], index of the row that owns the block, n for a block that no row of this pass owns. start: int64
    [m], position of the block's first token in its row. positions: int64 [n + 1], of the rows' tokens; -1 at index n.
    """

    line: torch.Tensor
    start: torch.Tensor
    positions: torch.Tensor


@dataclass
class Gather:
    """Rows whose blocks are copied together for one attention: lines first to first + c - 1 of the pass.

    blocks: int64 [c, w], block numbers in the order of positions; rows shorter than w repeat their first block.
    positions: int64 [c, t]; a token attends to positions up to its own.
    """

    first: int
    blocks: torch.Tensor
    positions: torch.Tensor


@dataclass
class Pass:
    """One forward pass over [b, t] tokens.

    slots: int64 [n], the slots into which new keys are written. real: int64 [n], indices of these tokens among the b ·
    t ones, or None if all are written. positions: int64 [b, t].
    reads: None when the tokens attend only to one another, else the blocks that are read.
    layer: the layer that attends now; `KvBlocks.update` sets it.
    """

    slots: torch.Tensor
    real: torch.Tensor | None
    positions: torch.Tensor
    reads: Decode | list[Gather] | None
    store: KvBlocks | None = None
    layer: int = 0
    cache: dict = field(default_factory=dict)

    def once(self, key, make):
        """Value of `make()` for this key: the first layer that asks computes it, the later layers of the pass reuse it.
        """
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]


def current_pass() -> Pass:
    """The pass that this thread runs."""
    return _local.current


class KvBlocks(Cache):
    """Storage of the keys and values of all layers. shapes: (kv heads, key dim, value dim) of each layer."""

    def __init__(
        self,
        shapes: list[tuple[int, int, int]],
        blocks: int,
        block_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__(layers=[])
        self.blocks, self.block_tokens, self.dtype, self.device = blocks, block_tokens, dtype, device
        self._whole: torch.Tensor | None = None
        self._scratch: list[torch.Tensor] = [torch.empty(0, dtype=dtype, device=device) for _ in range(2)]
        if all(shape == shapes[0] and shape[1] == shape[2] for shape in shapes):
            heads, dim, _ = shapes[0]
            self._whole = _zeros((len(shapes), 2, blocks, heads, block_tokens, dim), dtype, device)
            self.keys = [self._whole[layer, 0] for layer in range(len(shapes))]
            self.values = [self._whole[layer, 1] for layer in range(len(shapes))]
        else:
            self.keys = [_zeros((blocks, heads, block_tokens, key), dtype, device) for heads, key, _ in shapes]
            self.values = [_zeros((blocks, heads, block_tokens, value), dtype, device) for heads, _, value in shapes]
        # elements of one block of the layer with the widest keys and values, both together
        self._widest_block = max(heads * block_tokens * (key + value) for heads, key, value in shapes)
        bound = min(int(self.storage_bytes * SCRATCH_SHARE), SCRATCH_BYTES)
        self.scratch_blocks = max(1, bound // (self._widest_block * dtype.itemsize))

    @property
    def storage_bytes(self) -> int:
        """Bytes of the storage, from the tensors themselves."""
        stores = [self._whole] if self._whole is not None else [*self.keys, *self.values]
        return sum(store.untyped_storage().nbytes() for store in stores)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the scratch; it never shrinks, so this is also its peak."""
        return sum(buffer.untyped_storage().nbytes() for buffer in self._scratch)

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        """Writes the new keys and values [b, heads, t, dim] of a layer. transformers calls it in each layer; the
        attention then reads the storage by itself.
        """
        current: Pass = _local.current
        current.layer = layer_idx
        heads = key_states.shape[1]
        targets = current.once(("targets", heads), lambda: self._targets(current.slots, heads))
        for store, new in ((self.keys[layer_idx], key_states), (self.values[layer_idx], value_states)):
            tokens = new.transpose(1, 2).reshape(-1, heads, new.shape[-1])
            if current.real is not None:
                tokens = tokens.index_select(0, current.real)
            store.view(-1, store.shape[-1]).index_copy_(0, targets, tokens.reshape(-1, new.shape[-1]))
        return key_states, value_states

    def _targets(self, slots: torch.Tensor, heads: int) -> torch.Tensor:
        """Indices of tokens' keys [n, heads] in storage viewed as [blocks · heads · block_tokens, dim]: int64 [n ·
        heads].
        """
        blocks, places = slots // self.block_tokens, slots % self.block_tokens
        head = torch.arange(heads, device=slots.device)
        return ((blocks[:, None] * heads + head) * self.block_tokens + places[:, None]).view(-1)

    def copies(self, store: torch.Tensor, numbers: torch.Tensor, which: int) -> torch.Tensor:
        """Gathers the entries of `store` [entries, …] at the indices `numbers` (int64 [n]) into a scratch buffer:
        `which` 0 for keys, 1 for values. All layers reuse the buffer, because allocating new memory would cost more than
        the copy. Returns a view [n, …] of the buffer, valid until the next call with the same `which`.
        """
        size = len(numbers) * store[0].numel()
        if self._scratch[which].numel() < size:
            self._scratch[which] = torch.empty(size, dtype=self.dtype, device=self.device)
        return torch.index_select(store, 0, numbers, out=self._scratch[which][:size].view(-1, *store.shape[1:]))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def copy(self, sources: list[int], targets: list[int]) -> None:
        """Copies keys and values of block sources[i] to block targets[i], for every i, in all layers."""
        stores = [self._whole.flatten(0, 1).transpose(0, 1)] if self._whole is not None else [*self.keys, *self.values]
        for store in stores:
            for source, target in zip(sources, targets, strict=True):
                store[target].copy_(store[source])

    def exchange(self, low: np.ndarray, high: np.ndarray) -> None:
        """Exchanges keys and values of block low[i] and block high[i], for every i, in all layers. low, high: int64
        [n].
        """
        stores, place = ([*self.keys, *self.values], 0) if self._whole is None else ([self._whole], 2)
        # Bounds the two temporary copies, one of `low` and one of `high` blocks: each is at most as large as the
        # scratch, or as one block of every layer if that is larger.
        step = self.scratch_blocks if self._whole is None else max(1, self.scratch_blocks // len(self.keys))
        for at in range(0, len(low), step):
            one, other = (torch.from_numpy(numbers[at : at + step]).to(self.device) for numbers in (low, high))
            for store in stores:
                from_low, from_high = store.index_select(place, one), store.index_select(place, other)
                store.index_copy_(place, one, from_high).index_copy_(place, other, from_low)

    def clear(self) -> None:
        """Zeroes all keys and values: even a masked NaN would turn a sum into NaN."""
        for store in (*self.keys, *self.values):
            store.zero_()

    def run(self, model: torch.nn.Module, current: Pass, tokens: torch.Tensor):
        """Runs the model on tokens int64 [b, t] of one pass and returns its output."""
        current.store = self
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
    """(kv heads, key dim, value dim) of each layer. Raises UnsupportedModel if a layer does not keep its keys and
    values in a Cache.
    """
    probe = ShapeProbe()
    zero = torch.zeros((1, 1), dtype=torch.long, device=device)
    _local.current = Pass(zero[0], None, zero, None)
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
