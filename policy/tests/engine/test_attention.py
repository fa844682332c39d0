"""Paged decode in bfloat16: scores are not rounded before the softmax, however large they are."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from troupe_policy.engine.attention import _decode
from troupe_policy.engine.kv import Decode, KvBlocks, Pass

HEADS, DIM, BLOCK_TOKENS = 4, 32, 16
# Blocks of each row in the order of positions; block 3 belongs to no row.
BLOCKS, LENGTHS = [[0, 2], [1]], [29, 7]


@pytest.mark.parametrize("kv_heads", [2, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_decode_with_large_scores_is_near_attention_in_float32(kv_heads: int, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    store = KvBlocks([(kv_heads, DIM, DIM)], 4, BLOCK_TOKENS, dtype, torch.device("cpu"))
    store.keys[0].copy_(torch.randn(store.keys[0].shape) * 7)
    store.values[0].copy_(torch.randn(store.values[0].shape))
    query = (torch.randn(2, HEADS, 1, DIM) * 7).to(dtype)
    at = torch.tensor([length - 1 for length in LENGTHS])
    reads = Decode(torch.tensor([0, 1, 0, 2]), torch.tensor([0, 0, BLOCK_TOKENS, 0]), torch.tensor([*at, -1]))
    got = _decode(Pass(at, None, at[:, None], reads, store), reads, query, None, DIM**-0.5)
    assert got.dtype == dtype
    for row, (blocks, length) in enumerate(zip(BLOCKS, LENGTHS, strict=True)):
        keys, values = (part[0][blocks].float().transpose(0, 1).flatten(1, 2)[:, :length] for part in (store.keys, store.values))
        asked = query[row].float()
        scores = asked @ keys.repeat_interleave(HEADS // kv_heads, 0).transpose(1, 2) * DIM**-0.5
        assert scores.abs().max() > 64  # bfloat16 has steps of 0.5 there
        want = scaled_dot_product_attention(asked[None], keys[None], values[None], enable_gqa=True)[0]
        tolerance = 2**-6 if dtype == torch.bfloat16 else 1e-5  # weights and results are rounded to bfloat16
        torch.testing.assert_close(got[row].transpose(0, 1).float(), want, atol=tolerance, rtol=tolerance)
