"""Attention of a pack (sequences laid end to end in one row) by kernels that take sequences of any length without
padding: `varlen` (torch.nn.attention.varlen, FlashAttention) and `flex` (FlexAttention); and the choice of a kernel.

In: query, key and value of a pack, the active layout. Out: as packed_attention.attend, which is the kernel `sdpa`.
Invariants: every kernel computes the same attention, within the rounding of its dtype. varlen computes in bfloat16 on
CUDA. flex has no backward pass on a CPU. A recipe that names varlen or flex gets that kernel or an error, never another
kernel.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
from torch.nn.attention import varlen
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers.modeling_utils import AttentionInterface

from . import packed_attention
from .packed_attention import Layout, active_layout, layout_of

logger = logging.getLogger("troupe_policy")

# Kernels by name, each with the name under which transformers finds it.
ATTENTIONS = {"sdpa": packed_attention.ATTENTION, "varlen": "troupe_packed_varlen", "flex": "troupe_packed_flex"}


def chosen_kernel(asked: str, device: torch.device, half: bool) -> str:
    """The kernel for `train.attention`: auto is varlen in bfloat16 on CUDA, and sdpa elsewhere. half: matrix products
    run in bfloat16. Raises ValueError for an unknown name and for a kernel that cannot train here.
    """
    if asked not in ("auto", *ATTENTIONS):
        raise ValueError(f"there is no kernel {asked!r} for attention: expected auto, {', '.join(ATTENTIONS)}")
    on_cuda = device.type == "cuda"
    if asked == "auto":
        return "varlen" if on_cuda and half else "sdpa"
    if asked == "varlen" and not (on_cuda and half):
        kind = "bfloat16" if half else "float32"
        raise ValueError(f"varlen computes only in bfloat16 on CUDA, and this trainer has {kind} on {device.type}: set auto or sdpa")
    if asked == "flex" and not on_cuda:
        raise ValueError(f"flex has a backward pass only on CUDA, and this trainer is on {device.type}: set auto or sdpa")
    return asked


@torch.compiler.disable
def attend_varlen(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
    """Attention as packed_attention.attend, in bfloat16 whatever the inputs' dtype."""
    layout = active_layout(options, attention_mask)
    window = options.get("sliding_window")
    q, k, v = (tensor[0].transpose(0, 1).to(torch.bfloat16) for tensor in (query, key, value))
    ends, longest = layout.ends(query.device), layout.longest
    behind = -1 if window is None else window - 1
    out = varlen.varlen_attn(
        q, k, v, ends, ends, longest, longest, scale=scaling, window_size=(behind, 0), enable_gqa=q.shape[1] != k.shape[1]
    )
    return out[None], None


@torch.compiler.disable
def attend_flex(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
    """Attention as packed_attention.attend. On a CPU it has no backward pass."""
    layout = active_layout(options, attention_mask)
    attention = _compiled(flex_attention) if query.is_cuda else flex_attention
    mask = _block_mask(layout, options.get("sliding_window"), query.device)
    if value.dtype != query.dtype:  # rotary embeddings are float32 under autocast
        query, key = query.to(value.dtype), key.to(value.dtype)
    out = attention(query, key, value, block_mask=mask, scale=scaling, enable_gqa=query.shape[1] != key.shape[1])
    return out.transpose(1, 2), None


def kernel_works(kernel: str, device: torch.device, config: Any) -> bool:
    """Runs `kernel` (varlen or flex) and sdpa on three short sequences, with heads as the model's config has them. True
    if the kernel runs on this device and no number of its output or gradients differs from sdpa's by more than
    0.05 · (1 + the largest magnitude in sdpa's tensor).
    """
    heads = config.num_attention_heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    lengths = (6, 5, 2)
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, count, sum(lengths), dim, generator=draw).to(device) for count in (heads, shared, shared)]
    layout = layout_of(lengths, device)

    def run(attention: Any) -> list[torch.Tensor]:
        given = [tensor.clone().requires_grad_() for tensor in inputs]
        layout.activate()
        out = attention(None, *given, None)[0].float()
        out.square().sum().backward()
        return [out.detach(), *(tensor.grad for tensor in given)]

    try:
        found = run({"varlen": attend_varlen, "flex": attend_flex}[kernel])
    except Exception as error:  # any error of a kernel or of its compiler means that it does not work here
        logger.info("the attention kernel %s failed: %s", kernel, error)
        return False
    # The tolerance fits products in bfloat16, or in TF32 on a GPU.
    close = lambda one, other: torch.allclose(one, other, atol=0.05 * (1.0 + other.abs().max().item()))  # noqa: E731
    return all(close(one, other) for one, other in zip(found, run(packed_attention.attend), strict=True))


def _block_mask(layout: Layout, window: int | None, device: torch.device) -> Any:
    """FlexAttention's block mask of the pack; every layer with the same sliding window shares it."""

    def make() -> Any:
        owner = layout.owners(device)

        def allowed(batch, head, q, k):  # type: ignore[no-untyped-def]
            near = (q >= k) & (owner[q] == owner[k])
            return near if window is None else near & (q - k < window)

        made = _compiled(create_block_mask) if device.type == "cuda" else create_block_mask
        return made(allowed, None, None, len(owner), len(owner), device=str(device))

    return layout.kept(("block mask", window), make)


@cache
def _compiled(function):  # type: ignore[no-untyped-def]
    """Compiles a function of FlexAttention, which uncompiled would hold all scores in memory at once."""
    return torch.compile(function, dynamic=True)


AttentionInterface.register(ATTENTIONS["varlen"], attend_varlen)
AttentionInterface.register(ATTENTIONS["flex"], attend_flex)
