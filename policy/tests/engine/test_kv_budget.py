"""KV memory: the tensors that hold keys and values are the budget, whatever the context and the number of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engine_support import Driver, forward_logprobs, model_dir, random_tokens, request
from troupe_policy.engine.blocks import BlockTables
from troupe_policy.engine.compact import compact

LAYERS = 12
SIZES = {"num_hidden_layers": LAYERS, "max_position_embeddings": 4096}
# keys and values of a token in all layers: 2 kv heads of 8 float32 numbers each
TOKEN_BYTES = LAYERS * 2 * 2 * 8 * 4


@pytest.mark.parametrize("deterministic", [False, True])
def test_long_contexts_in_many_rows_never_take_more_memory_than_the_budget(tmp_path: Path, deterministic: bool) -> None:
    directory = model_dir(tmp_path, **SIZES)
    driver = Driver(
        directory, kv_tokens=1024, max_sequences=64, context_tokens=4096, deterministic=deterministic
    )
    engine, tables = driver.engine, driver.engine.ledger.tables
    promised = 1024 * TOKEN_BYTES
    lengths = [600, 7, 41, 250, 3, 16, 90, 128]
    first = [request(f"g/{i}", length=n, max_tokens=9, keep=True, priority=i) for i, n in enumerate(lengths)]
    for one in first:
        engine.submit(one)
    while engine.step():
        assert tables.used <= tables.blocks == 64
        assert engine.reserved_bytes <= 1.1 * promised
    ended = {event.request.request_id: event for event in driver.events}
    for one in first:
        got = ended[one.request_id]
        context = np.concatenate([one.context, got.tokens, random_tokens(5, 3)])
        (got,) = driver.answers(request(f"{one.request_id}b", context=context, trajectory=one.trajectory, max_tokens=4))
        expected = forward_logprobs(directory, context, got.tokens)
        np.testing.assert_allclose(got.logprobs, expected, atol=1e-4, rtol=0)
    assert engine._store.storage_bytes == promised
    assert engine.reserved_bytes <= 1.1 * promised


def test_a_released_trajectory_gives_every_block_back(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path))
    driver.answers(*[request(f"g/{i}", length=30 + i, keep=i % 2 == 0) for i in range(6)])
    tables = driver.engine.ledger.tables
    assert tables.used == driver.engine.ledger.kept_blocks() > 0
    for i in range(6):
        driver.engine.release(f"g/{i}")
    driver.engine.step()
    assert tables.used == 0 and (tables.owner == -1).all()


class FakeStore:
    """Storage of one number a block, in place of keys and values."""

    def __init__(self, blocks: int) -> None:
        self.content = np.full(blocks, -1)

    def exchange(self, low: np.ndarray, high: np.ndarray) -> None:
        self.content[low], self.content[high] = self.content[high], self.content[low]


def test_compaction_brings_the_decoding_rows_together_and_every_row_keeps_its_blocks_in_order() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        rows, blocks = int(draw.integers(2, 9)), 40
        tables, store = BlockTables(rows, 160, 4, blocks), FakeStore(blocks)
        for _ in range(30):
            row = int(draw.integers(rows))
            tokens = int(draw.integers(1, 20))
            if draw.random() < 0.3:
                tables.trim(row, tokens)
            else:
                tables.grow(row, tokens)
        for row in range(rows):
            tables.grow(row, 1)
            for at in range(tables.count[row]):
                store.content[tables.table[row, at]] = row * 100 + at
        decoding = np.sort(draw.choice(rows, int(draw.integers(1, rows)), replace=False))
        compact(tables, store, decoding)
        mine = np.isin(tables.owner, decoding)
        assert np.flatnonzero(mine)[-1] + 1 <= mine.sum() * 1.25
        for row in range(rows):
            held = tables.table[row, : tables.count[row]]
            assert store.content[held].tolist() == [row * 100 + at for at in range(len(held))]
            assert (tables.owner[held] == row).all()
        assert tables.used == tables.count.sum() == (tables.owner >= 0).sum()
        while tables.used < blocks:
            before = tables.used
            tables.grow(0, int(tables.count[0]) * 4 + 1)
            assert tables.used == before + 1
