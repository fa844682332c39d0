"""Deterministic mode: the bits of an answer depend only on its own request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engine_support import Driver, model_dir, random_tokens, request
from troupe_policy.engine.requests import Finished, Request

# Model sizes large enough that matrix products are cut into tiles, and odd enough that tiles are not full.
SIZES = {"hidden_size": 96, "intermediate_size": 200, "vocab_size": 317, "num_hidden_layers": 3}
ARCHITECTURES = {
    "llama": SIZES,
    "gpt-neox": {"model_type": "gpt_neox", **SIZES},
}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def directory(request, tmp_path_factory) -> Path:
    return model_dir(tmp_path_factory.mktemp("deterministic"), **ARCHITECTURES[request.param])


def driver(directory: Path, **options) -> Driver:
    return Driver(directory, deterministic=True, **options)


def the_one(**changes) -> Request:
    return request("g/one", length=37, max_tokens=30, **{"temperature": 0.9, **changes})


def others(count: int, **changes) -> list[Request]:
    """Requests of many lengths, some with filters, some in the same group as `the_one` and with half its prompt."""
    shared = the_one().context[:20]
    made = []
    for i in range(count):
        context = np.concatenate([shared, random_tokens(i, i)]) if i % 4 == 0 else random_tokens(5 + 2 * i, i)
        name = f"g/{i}" if i % 4 == 0 else f"other{i}"
        made.append(request(name, context=context, max_tokens=10 + i, top_k=(i % 3) * 5, priority=i, **changes))
    return made


def same(a: Finished, b: Finished) -> bool:
    return a.tokens.tobytes() == b.tokens.tobytes() and a.logprobs.tobytes() == b.logprobs.tobytes()


def test_an_answer_is_bit_equal_alone_and_among_32_others_in_any_order(directory: Path) -> None:
    (alone,) = driver(directory).answers(the_one())
    crowd = driver(directory, max_sequences=33)
    assert len(alone.tokens) == 30
    before = driver(directory).answers(*others(32), the_one(priority=99))[-1]
    first = driver(directory).answers(the_one(priority=-1), *others(32))[0]
    assert same(alone, before) and same(alone, first)
    late = crowd
    for one in others(16):
        late.engine.submit(one)
    late.steps(7)
    late.engine.submit(the_one())
    for one in others(32)[16:]:
        late.engine.submit(one)
    # 33 sequences need a wider forward pass, so this engine is compared with another of the same width.
    (alone_wide,) = driver(directory, max_sequences=33).answers(the_one())
    assert same(late.drain()["g/one"], alone_wide)


def test_an_answer_is_bit_equal_after_it_was_preempted(directory: Path) -> None:
    (alone,) = driver(directory).answers(the_one())
    crowded = driver(directory, kv_tokens=18 * 16)
    answers = crowded.answers(*[request(f"x{i}", length=20, max_tokens=60) for i in range(4)], the_one(priority=9))
    assert answers[-1].preemptions > 0
    assert same(alone, answers[-1])


def test_a_turn_resumed_on_another_engine_goes_on_with_the_same_bits(directory: Path) -> None:
    (whole,) = driver(directory).answers(the_one())
    for cut in (1, 13, 29):
        context = np.concatenate([whole.request.context, whole.tokens[:cut]])
        resumed = the_one(context=context, resumed_tokens=cut)
        resumed = Request(**{**resumed.__dict__, "max_tokens": 30 - cut})
        got = driver(directory).answers(*others(5), resumed)[-1]
        assert got.tokens.tolist() == whole.tokens[cut:].tolist()
        assert got.logprobs.tobytes() == whole.logprobs[cut:].tobytes()


def test_a_second_turn_is_bit_equal_on_kept_keys_and_on_computed_ones(directory: Path) -> None:
    keeps, forgets = driver(directory), driver(directory)
    (first,) = keeps.answers(the_one(keep=True))
    (again,) = forgets.answers(the_one(keep=False))
    assert same(first, again)
    context = np.concatenate([first.request.context, first.tokens, random_tokens(9, 5)])
    (kept,) = keeps.answers(the_one(context=context))
    (computed,) = forgets.answers(the_one(context=context))
    assert kept.cached_tokens > 0 and computed.cached_tokens == 0
    assert same(kept, computed)
