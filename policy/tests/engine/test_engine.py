"""The engine against plain forward passes: what it samples and reports, and how it acts without free KV cache or usable
weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from engine_support import Driver, forward_logits, forward_logprobs, model_dir, random_tokens, request
from safetensors.torch import load_file, save_file
from troupe_policy.model.checkpoint import weights_digest
from troupe_policy.engine.requests import Finished, Partial, Refused
from troupe_policy.engine.kv import UnsupportedModel
from troupe_policy.engine.loaded_model import WeightsError, load_model

ARCHITECTURES = {
    "llama": {},
    "mistral-sliding": {"model_type": "mistral", "sliding_window": 8},
    "gpt-neox": {"model_type": "gpt_neox", "hidden_size": 32, "num_key_value_heads": None},
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "qwen3": {"model_type": "qwen3", "head_dim": 8},
}


def changes_of(architecture: str) -> dict:
    return {key: value for key, value in ARCHITECTURES[architecture].items() if value is not None}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_logprob_is_that_of_a_plain_forward_over_two_turns(tmp_path: Path, architecture: str) -> None:
    directory = model_dir(tmp_path, **changes_of(architecture))
    driver = Driver(directory)
    first = [request(f"t{i}", length=4 + 3 * i, max_tokens=5 + i, keep=True, priority=i) for i in range(12)]
    answers = driver.answers(*first)
    second = []
    for i, (asked, got) in enumerate(zip(first, answers, strict=True)):
        assert got.finish == "length" and len(got.tokens) == asked.max_tokens
        np.testing.assert_allclose(
            got.logprobs, forward_logprobs(directory, asked.context, got.tokens), atol=1e-4, rtol=0
        )
        context = np.concatenate([asked.context, got.tokens, random_tokens(7, 100 + i)])
        second.append(request(f"second{i}", context=context, trajectory=f"t{i}", max_tokens=9, temperature=0.7))
    prefilled = driver.engine.prefilled_tokens
    for asked, got in zip(second, driver.answers(*second), strict=True):
        assert got.cached_tokens == len(asked.context) - 8
        np.testing.assert_allclose(
            got.logprobs, forward_logprobs(directory, asked.context, got.tokens, 0.7), atol=1e-4, rtol=0
        )
    # prefilled: the last sampled token of the first turn and six of the seven new ones; the decode computes the
    # seventh
    assert driver.engine.prefilled_tokens - prefilled == 12 * 7


def test_an_architecture_that_keeps_other_state_is_refused_by_name(tmp_path: Path) -> None:
    directory = model_dir(tmp_path, model_type="mamba", num_hidden_layers=2, state_size=4)
    with pytest.raises(UnsupportedModel):
        load_model(directory, "cpu")


def test_members_of_a_group_compute_their_common_prompt_once(tmp_path: Path) -> None:
    directory = model_dir(tmp_path)
    driver = Driver(directory)
    prompt = random_tokens(40, 1)
    members = [request(f"g/{i}", context=prompt, seed=i, max_tokens=6) for i in range(8)]
    for got in driver.answers(*members):
        np.testing.assert_allclose(got.logprobs, forward_logprobs(directory, prompt, got.tokens), atol=1e-4, rtol=0)
    assert driver.engine.prefilled_tokens == 39


def test_a_stop_token_ends_the_turn_and_is_part_of_it(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path))
    (free,) = driver.answers(request("a", max_tokens=20))
    stop = int(free.tokens[7])
    (stopped,) = driver.answers(request("a", max_tokens=20, stop_tokens=(stop,)))
    end = free.tokens.tolist().index(stop) + 1
    assert stopped.finish == "stop" and stopped.tokens.tolist() == free.tokens.tolist()[:end]


def test_temperature_zero_is_greedy_and_certain(tmp_path: Path) -> None:
    directory = model_dir(tmp_path)
    (got,) = Driver(directory).answers(request("a", temperature=0.0, max_tokens=8))
    best = forward_logits(directory, np.concatenate([got.request.context, got.tokens]))[11:-1].argmax(-1)
    assert got.tokens.tolist() == best.tolist()
    assert (got.logprobs == 0).all()


def test_preempted_requests_end_with_the_right_tokens_and_the_youngest_is_the_victim(tmp_path: Path) -> None:
    directory = model_dir(tmp_path)
    driver = Driver(directory, kv_tokens=20 * 16)
    asked = [request(f"t{i}", length=20, max_tokens=60, priority=i) for i in range(8)]
    for one in asked:
        driver.engine.submit(one)
    driver.steps(200)
    ended = driver.drain()
    answers = [ended[one.request_id] for one in asked]
    assert driver.engine.preemptions > 0
    assert driver.engine.preemptions == sum(got.preemptions for got in answers)
    assert answers[0].preemptions == 0
    for one, got in zip(asked, answers, strict=True):
        assert len(got.tokens) == 60
        expected = forward_logprobs(directory, one.context, got.tokens)
        np.testing.assert_allclose(got.logprobs, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("deterministic", [False, True])
def test_entropies_that_are_asked_for_are_those_of_a_plain_forward_through_preemptions(
    tmp_path: Path, deterministic: bool
) -> None:
    directory = model_dir(tmp_path)
    driver = Driver(directory, kv_tokens=96, entropies=True, deterministic=deterministic)
    asked = [request(f"t{i}", length=10, max_tokens=30, priority=i, temperature=0.8) for i in range(4)]
    answers = driver.answers(*asked)
    assert driver.engine.preemptions > 0
    for one, got in zip(asked, answers, strict=True):
        logits = forward_logits(directory, np.concatenate([one.context, got.tokens]))[len(one.context) - 1 : -1]
        expected = torch.distributions.Categorical(logits=logits / 0.8).entropy()
        np.testing.assert_allclose(got.entropies, expected.numpy(), atol=1e-4, rtol=0)
    (plain,) = Driver(directory, kv_tokens=96).answers(asked[0])
    assert len(plain.entropies) == 0
    assert plain.tokens.tobytes() == answers[0].tokens.tobytes()


def test_kept_trajectories_go_before_a_running_one_is_preempted_the_oldest_first(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path), kv_tokens=16 * 16)
    for name in ("a", "b", "c"):
        driver.answers(request(name, length=40, max_tokens=4, keep=True))
    assert driver.engine.status()["cached_tokens"] == 3 * 48
    driver.answers(request("d", length=100, max_tokens=20))
    assert list(driver.engine.ledger.kept) == ["b", "c"] and driver.engine.preemptions == 0


def test_releasing_a_trajectory_frees_its_keys(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path))
    driver.answers(request("a", keep=True))
    assert driver.engine.status()["cached_tokens"] > 0
    driver.engine.release("a")
    driver.engine.step()
    assert driver.engine.status()["cached_tokens"] == 0


def test_an_aborted_request_says_what_it_had_running_or_waiting(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path), max_sequences=1)
    (whole,) = driver.answers(request("a", max_tokens=30))
    driver.engine.submit(request("a", max_tokens=30))
    driver.engine.submit(request("b", max_tokens=30))
    driver.steps(10)
    driver.engine.abort("b")
    driver.engine.abort("a")
    ended = driver.drain()
    assert ended["a"].finish == "aborted" and ended["a"].tokens.tolist() == whole.tokens.tolist()[:10]
    assert ended["b"].finish == "aborted" and len(ended["b"].tokens) == 0


def test_waiting_requests_are_admitted_by_priority(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path), max_sequences=1)
    for priority in (5, 3, 9, 1):
        driver.engine.submit(request(f"p{priority}", max_tokens=2, priority=priority))
    driver.drain()
    assert [event.request.priority for event in driver.events] == [1, 3, 5, 9]


def test_streamed_tokens_add_up_to_the_answer(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path))
    driver.engine.submit(request("a", stream=True))
    driver.engine.submit(request("b"))
    answer = driver.drain()["a"]
    parts = [event.tokens for event in driver.events if isinstance(event, Partial)]
    assert np.concatenate(parts).tolist() == answer.tokens.tolist()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"length": 128}, "engine.context_exceeded"),
        ({"length": 0}, "engine.bad_request"),
        ({"max_tokens": 0}, "engine.bad_request"),
        ({"context": np.array([5, 97], np.int32)}, "engine.bad_request"),
        ({"context": np.array([5, -1], np.int32)}, "engine.bad_request"),
        ({"temperature": float("nan")}, "engine.bad_request"),
        ({"top_p": 0.0}, "engine.bad_request"),
        ({"resumed_tokens": 99}, "engine.bad_request"),
        ({"stop_tokens": tuple(range(9))}, "engine.bad_request"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_and_the_others_go_on(tmp_path: Path, changes, code: str) -> None:
    driver = Driver(model_dir(tmp_path))
    refused, served = driver.answers(request("bad", **changes), request("good"))
    assert isinstance(refused, Refused) and refused.code == code
    assert isinstance(served, Finished) and len(served.tokens) == 20


def test_a_prompt_over_the_whole_budget_and_a_request_over_the_queue_are_refused(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path), kv_tokens=64, max_waiting=2)
    (refused,) = driver.answers(request("long", length=64))
    assert refused.code == "engine.context_exceeded"
    got = driver.answers(*[request(f"t{i}") for i in range(4)])
    assert [isinstance(one, Refused) and one.code for one in got] == [False, False, "engine.busy", "engine.busy"]


def test_requests_that_were_aborted_while_they_waited_take_no_place_in_the_queue(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path), max_waiting=2)
    for name in ("a", "b"):
        driver.engine.submit(request(name))
    driver.engine.abort("a")
    got = driver.answers(request("c"), request("d"))
    assert [isinstance(one, Refused) and one.code for one in got] == [False, "engine.busy"]


def test_a_turn_ends_at_the_context_and_a_lone_one_at_the_budget(tmp_path: Path) -> None:
    directory = model_dir(tmp_path)
    (got,) = Driver(directory).answers(request("a", length=120, max_tokens=50))
    assert got.finish == "length" and len(got.tokens) == 8
    (got,) = Driver(directory, kv_tokens=48).answers(request("a", length=40, max_tokens=50))
    assert got.finish == "length" and len(got.tokens) == 9


def test_new_weights_apply_between_tokens_and_the_segments_say_where(tmp_path: Path) -> None:
    old, new = model_dir(tmp_path, "old"), model_dir(tmp_path, "new", seed=9)
    driver = Driver(old)
    asked = [request(f"t{i}", length=10 + i, max_tokens=20, keep=i % 2 == 0) for i in range(6)]
    driver.answers(request("kept", keep=True))
    for one in asked:
        driver.engine.submit(one)
    driver.steps(8)
    update = driver.engine.update(3, str(new), weights_digest(new)[0], keep_kv=False)
    ended = driver.drain()
    assert update.result(0) >= 0 and driver.engine.version == 3
    assert "kept" not in driver.engine.ledger.kept
    for one in asked:
        got = ended[one.request_id]
        assert [(s.version, s.start, s.end) for s in got.segments] == [(0, 0, 8), (3, 8, 20)]
        np.testing.assert_allclose(
            got.logprobs[:8], forward_logprobs(old, one.context, got.tokens[:8]), atol=1e-4, rtol=0
        )
        seen = np.concatenate([one.context, got.tokens[:8]])
        np.testing.assert_allclose(got.logprobs[8:], forward_logprobs(new, seen, got.tokens[8:]), atol=1e-4, rtol=0)


def test_keys_of_older_weights_stay_where_that_is_asked(tmp_path: Path) -> None:
    driver = Driver(model_dir(tmp_path, "old"))
    driver.answers(request("a", keep=True))
    before = driver.engine.prefilled_tokens
    update = driver.engine.update(1, str(model_dir(tmp_path, "new", seed=9)), "", keep_kv=True)
    driver.drain()
    update.result(0)
    assert "a" in driver.engine.ledger.kept and driver.engine.prefilled_tokens == before


def test_weights_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    directory = model_dir(tmp_path)
    driver = Driver(directory)
    (before,) = driver.answers(request("a"))
    other = model_dir(tmp_path, "other", hidden_size=64)
    part = tmp_path / "part"
    part.mkdir()
    weights = load_file(directory / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file({name: value + 1 for name, value in weights.items()}, part / "model.safetensors")
    for bad, digest in ((other, ""), (part, ""), (directory, "0" * 64), (tmp_path / "nowhere", "")):
        update = driver.engine.update(1, str(bad), digest, keep_kv=False)
        driver.engine.step()
        with pytest.raises(WeightsError):
            update.result(0)
    (after,) = driver.answers(request("a"))
    assert driver.engine.version == 0 and after.tokens.tolist() == before.tokens.tolist()


def test_weights_that_are_not_finite_refuse_requests_until_better_ones_come(tmp_path: Path) -> None:
    directory = model_dir(tmp_path)
    driver = Driver(directory)
    (before,) = driver.answers(request("a"))
    broken = tmp_path / "broken"
    broken.mkdir()
    weights = load_file(directory / "model.safetensors")
    nan = {name: torch.full_like(value, float("nan")) for name, value in weights.items()}
    save_file(nan, broken / "model.safetensors")
    driver.engine.update(1, str(broken), "", keep_kv=False)
    (refused,) = driver.answers(request("a"))
    assert isinstance(refused, Refused) and refused.code == "engine.not_finite"
    driver.engine.update(2, str(directory), "", keep_kv=False)
    (after,) = driver.answers(request("a"))
    assert after.tokens.tolist() == before.tokens.tolist()


def test_a_row_that_is_not_finite_is_refused_alone_and_its_neighbours_answers_stay_right(tmp_path: Path) -> None:
    directory = model_dir(tmp_path)
    (alone,) = Driver(directory).answers(request("b"))
    driver = Driver(directory)
    for name in ("a", "b"):
        driver.engine.submit(request(name))
    driver.steps(5)
    row = next(row for row in driver.engine.ledger.running if driver.engine.ledger.owner[row].request.request_id == "a")
    block = driver.engine.ledger.tables.table[row, 0]
    driver.engine._store.keys[0][block, :, :4] = float("nan")
    ended = driver.drain()
    assert isinstance(ended["a"], Refused) and ended["a"].code == "engine.not_finite"
    assert ended["b"].tokens.tolist() == alone.tokens.tolist()
    assert np.allclose(ended["b"].logprobs, alone.logprobs, atol=1e-5)
