"""Attention over the KV blocks, registered with transformers under the name ATTENTION.

In: the queries of a pass, and the blocks that the pass reads. Out: attention with our mask instead of the model's.
A row is one sequence's place in the KV storage. Invariants: a token attends to its own row only, up to its own position
(under a sliding window of w, to the last w positions). A row's result never mixes with keys of another row's blocks,
not even masked ones: another row's NaN stays in that row.

A decode reads the blocks in place: each block is a small matrix product of its own, and a softmax over a row's blocks
joins the results. No row is padded to the length of the longest.
"""

from __future__ import annotations

from functools import cache

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import AttentionInterface

from ..model.unsupported import UnsupportedModel
from .kv import Decode, Gather, Pass, current_pass

ATTENTION = "troupe_blocks"


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
    """Attention of the current pass. query [b, heads, t, dim]; key, value [b, kv_heads, t, dim] of the new tokens
    → [b, t, heads, dim], None.
    """
    current = current_pass()
    if options.get("softcap") is not None or options.get("s_aux") is not None:
        raise UnsupportedModel("the engine does not support attention with soft capping or sinks: use vllm or sglang for this model")
    window = options.get("sliding_window")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if current.reads is None:
        out = _among_themselves(query, key, value, window, scaling)
    elif isinstance(current.reads, Decode):
        return _decode(current, current.reads, query, window, scaling), None
    else:
        parts = [_gathered(current, at, gather, query, window, scaling) for at, gather in enumerate(current.reads)]
        lines = sum(part.shape[0] for part in parts)
        if lines < query.shape[0]:  # deterministic mode pads a pass with idle lines, whose results nobody uses
            parts.append(parts[0].new_zeros((query.shape[0] - lines, *parts[0].shape[1:])))
        out = torch.cat(parts) if len(parts) > 1 else parts[0]
    return out.transpose(1, 2).contiguous(), None


def _among_themselves(query, key, value, window: int | None, scaling: float) -> torch.Tensor:
    """Causal attention among the pass's own tokens, for sequences that start at position 0 in this pass. Returns
    [b, heads, t, dim].
    """
    width, shared = query.shape[2], query.shape[1] > key.shape[1]
    if window is None or window >= width:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=shared)
    at = torch.arange(width, device=query.device)
    bias = _bias(at, at[None], window, query.dtype)
    return scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scaling, enable_gqa=shared)


def _bias(at: torch.Tensor, positions: torch.Tensor, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """Mask [b, 1, t, keys]: 0 where the token at position positions[b, t] may attend to the key at position at[keys],
    -inf elsewhere. window: number of positions that a token sees, its own included; None for all.
    """
    here = positions[:, None, :, None]
    visible = at <= here
    if window is not None:
        visible &= at > here - window
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, float("-inf"))


def _decode(current: Pass, reads: Decode, query, window: int | None, scaling: float) -> torch.Tensor:
    """Attention of one token of each of n rows. query [n, heads, 1, dim] → [n, 1, heads, dim]. Scores and softmax are
    in float32.
    """
    store = current.store
    keys, values = store.keys[current.layer], store.values[current.layer]
    n, heads, _, dim = query.shape
    kv_heads, size = keys.shape[1], store.block_tokens
    groups, m = heads // kv_heads, len(reads.line)

    def mask() -> torch.Tensor:
        at = reads.start[:, None] + torch.arange(size, device=query.device)
        here = reads.positions.index_select(0, reads.line)[:, None]
        visible = at <= here
        if window is not None:
            visible &= at > here - window
        return torch.zeros(visible.shape, device=query.device).masked_fill_(~visible, float("-inf"))[:, None, None]

    bias = current.once(("bias", window), mask)
    # A block that no row of the pass owns has line n. It is computed with the query of row n - 1, and line n of the
    # results is dropped.
    asked = current.once("asked", lambda: reads.line.clamp(max=n - 1))
    queries = query.reshape(n, -1).index_select(0, asked).view(m * kv_heads, groups, dim)
    scores = _products(queries, keys[:m].flatten(0, 1).transpose(1, 2)).view(m, kv_heads, groups, size)
    scores.mul_(scaling).add_(bias)
    peaks = torch.full((n + 1, heads), float("-inf"), device=query.device)
    of_block = reads.line[:, None].expand(m, heads)
    peaks.scatter_reduce_(0, of_block, scores.amax(-1).view(m, heads), "amax")
    scores.sub_(peaks.index_select(0, reads.line).view(m, kv_heads, groups, 1)).exp_()
    total = torch.zeros((n + 1, heads), device=query.device)
    total.index_add_(0, reads.line, scores.sum(-1).view(m, heads))
    weights = scores.to(query.dtype).view(m * kv_heads, groups, size)
    if groups == 1 and query.device.type == "cpu":
        # MKL's batched product is four times faster with two query lines than with one. The second is dropped below.
        weights = weights.repeat(1, 2, 1)
    parts = torch.bmm(weights, values[:m].flatten(0, 1))[:, :groups]
    width = values.shape[-1]
    out = torch.zeros((n + 1, heads * width), device=query.device)
    out.index_add_(0, reads.line, parts.reshape(m, heads * width).float())
    out = out[:n].view(n, heads, width) / total[:n, :, None]
    return out.to(query.dtype)[:, None]


def _products(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Products [b, groups, size] of queries and keys, in float32 and not rounded to the inputs' dtype: bfloat16 near
    100 has steps of 0.5.
    """
    if queries.dtype == torch.float32:
        return torch.bmm(queries, keys)
    if _has_float32_products(queries.device, queries.dtype):
        return torch.bmm(queries, keys, out_dtype=torch.float32)
    return torch.bmm(queries.float(), keys.float())


@cache
def _has_float32_products(device: torch.device, dtype: torch.dtype) -> bool:
    """True if torch multiplies matrices of `dtype` into float32; in torch 2.13 a CPU does not."""
    one = torch.ones((1, 8, 8), dtype=dtype, device=device)
    try:
        torch.bmm(one, one, out_dtype=torch.float32)
    except RuntimeError:  # NotImplementedError is one
        return False
    return True


def _gathered(current: Pass, number: int, gather: Gather, query, window: int | None, scaling: float) -> torch.Tensor:
    """Attention of the c lines (entries of the pass's batch) that `gather` names, over copies of their rows' blocks.
    Returns [c, heads, t, dim].
    """
    store = current.store
    keys, values = store.keys[current.layer], store.values[current.layer]
    count, blocks = gather.blocks.shape
    kv_heads, size = keys.shape[1], store.block_tokens
    query = query[gather.first : gather.first + count]
    heads, width, dim = query.shape[1:]

    def pages() -> torch.Tensor:
        head = torch.arange(kv_heads, device=query.device)[None, :, None]
        return (gather.blocks[:, None] * kv_heads + head).view(-1)

    def rows(part: torch.Tensor, which: int) -> torch.Tensor:
        index = current.once(("pages", number, kv_heads), pages)
        return store.copies(part.flatten(0, 1), index, which).view(count, kv_heads, blocks * size, part.shape[-1])

    at = torch.arange(blocks * size, device=query.device)
    bias = current.once(("bias", number, window), lambda: _bias(at, gather.positions, window, query.dtype))
    key, value = rows(keys, 0), rows(values, 1)
    if width > 1:
        shared = heads > kv_heads
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scaling, enable_gqa=shared)
    # Query heads that share a key head become queries of that one head, so no key is repeated.
    grouped = query.reshape(count, kv_heads, heads // kv_heads, dim)
    out = scaled_dot_product_attention(grouped, key, value, attn_mask=bias, scale=scaling)
    return out.reshape(count, heads, 1, value.shape[-1])


AttentionInterface.register(ATTENTION, attend)
