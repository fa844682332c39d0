"""The trainer: its step against a float64 reference through full logits, atomicity, determinism, independence of the cut
into micro-batches.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer, grpo_options, sft_options
from transformers import AutoModelForCausalLM
from troupe_policy.generated import policy_pb2 as pb
from troupe_policy.server import arguments
from troupe_policy.trainer.batch.batching import epoch_batches, micro_batches
from troupe_policy.trainer.trainer import (
    GrpoOptions,
    SftExample,
    SftOptions,
    TrainerError,
    TrainSequence,
    learning_rate_at,
)
from troupe_policy.trainer.options import options_of

torch.set_num_threads(1)
OPTIONS = grpo_options(learning_rate=1e-3, micro_batch_tokens=128, temperature=0.7, correction_high=1.5, max_grad_norm=0.0)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.parameters.items()}


def state_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return dict(trainer.optimizer.named_state())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def gradients_of(trainer: Trainer, sequences: list[TrainSequence], options: GrpoOptions) -> tuple[dict, dict]:
    """Runs a step; returns the gradient just before the update, and the step's metrics. The weights stay unchanged."""
    kept: dict[str, torch.Tensor] = {}

    def update(loss: float, rate: float, max_grad_norm: float) -> float:
        kept.update({name: p.grad.clone() for name, p in trainer.parameters.items()})
        return torch.nn.utils.get_total_norm(list(kept.values())).item()

    trainer.update = update  # type: ignore[method-assign]
    metrics = trainer.step(sequences, options)
    del trainer.update
    return kept, metrics


def reference_gradients(directory: Path, sequences: list[TrainSequence], options: GrpoOptions) -> tuple[float, dict]:
    """Loss and gradient computed one sequence at a time from the model's own logits in float64; π_old is the current policy."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64).eval()
    trained = [int(s.mask[1:].sum()) for s in sequences]
    groups = {s.group for s in sequences}
    loss = 0.0
    for s, own in zip(sequences, trained, strict=True):
        ids = torch.tensor(s.tokens.astype(np.int64))[None]
        table = torch.log_softmax(model(input_ids=ids).logits[0] / options.temperature, -1)
        if options.loss_norm == "batch-tokens":
            divisor = sum(trained)
        elif options.loss_norm == "group-tokens":
            divisor = len(groups) * sum(n for n, t in zip(trained, sequences, strict=True) if t.group == s.group)
        else:
            divisor = own * len(sequences)
        for t in range(1, len(s.tokens)):
            if s.mask[t]:
                logp = table[t - 1, s.tokens[t]]
                w = min(math.exp(logp.item() - float(s.engine_logp[t])), options.correction_high)
                loss = loss - w * s.advantage * torch.exp(logp - logp.detach()) / divisor
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("norm", ["batch-tokens", "group-tokens", "sequences"])
def test_loss_and_gradient_of_a_step_are_those_of_a_float64_reference_through_full_logits(model_dir, norm) -> None:
    sequences = random_sequences(11, seed=1)
    options = dataclasses.replace(OPTIONS, loss_norm=norm)
    want_loss, want = reference_gradients(model_dir, sequences, options)
    got, metrics = gradients_of(Trainer(model_dir), sequences, options)
    assert metrics["loss"] == pytest.approx(want_loss, abs=1e-6)
    for name, gradient in want.items():
        assert torch.allclose(got[name].double(), gradient, atol=1e-6 + 1e-4 * gradient.abs().max().item()), name


def test_order_and_micro_batches_change_the_gradient_by_rounding_only(model_dir) -> None:
    sequences = random_sequences(12, seed=2)
    base, _ = gradients_of(Trainer(model_dir), sequences, OPTIONS)
    for order, bound in ((list(range(12)), 1), (list(range(12)), 10_000), (list(reversed(range(12))), 90)):
        options = dataclasses.replace(OPTIONS, micro_batch_tokens=bound)
        got, _ = gradients_of(Trainer(model_dir), [sequences[at] for at in order], options)
        for name, gradient in base.items():
            assert torch.allclose(got[name], gradient, atol=1e-6 + 1e-5 * gradient.abs().max().item()), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_two_trainers_from_one_checkpoint_give_the_same_bits(model_dir, dtype) -> None:
    ends = []
    for _ in range(2):
        trainer = Trainer(model_dir, dtype=dtype)
        metrics = [trainer.step(random_sequences(8, seed=seed), OPTIONS) for seed in (1, 2)]
        ends.append((weights(trainer), metrics[1]["loss"], metrics[1]["gradNorm"]))
    assert same(ends[0][0], ends[1][0])
    assert ends[0][1:] == ends[1][1:]


def test_a_step_raises_the_probability_of_what_had_an_advantage_and_reports_its_numbers(model_dir) -> None:
    trainer = Trainer(model_dir)
    good, bad = random_sequences(2, seed=3)
    sequences = [dataclasses.replace(good, advantage=1.0), dataclasses.replace(bad, advantage=-1.0)]
    first = trainer.step(sequences, OPTIONS)
    for _ in range(5):
        last = trainer.step(sequences, dataclasses.replace(OPTIONS, correction="none"))
    assert last["loss"] == pytest.approx(first["loss"], abs=5.0) and last["tisMean"] == 1.0
    expected = {
        "loss", "gradNorm", "clipFraction", "klEngine", "tisMean", "tisCapped", "entropy", "trainedTokens", "sequences",
        "seconds", "tokensPerSecond", "cpuMs", "maxRssBytes", "lr",
    }  # fmt: skip
    assert set(first) == expected
    assert all(math.isfinite(value) for value in first.values())
    assert first["trainedTokens"] == sum(int(s.mask[1:].sum()) for s in sequences)
    assert first["clipFraction"] == 0.0  # with one inner step the ratio of π to π_old is 1
    assert 0.0 < first["entropy"] <= math.log(97) + 1e-6

    # the engine's logprobs are now the old policy's: tokens of the good sequence have become likelier than the bad
    # one's
    def mean_gain(s: TrainSequence) -> float:
        probe = dataclasses.replace(s, engine_logp=np.zeros_like(s.engine_logp))
        before = Trainer(model_dir).step([probe], OPTIONS)["klEngine"]
        return before - trainer_probe.step([probe], OPTIONS)["klEngine"]

    trainer.save(model_dir.parent / "after", False)
    trainer_probe = Trainer(model_dir.parent / "after")
    gain_good = mean_gain(good)
    trainer_probe = Trainer(model_dir.parent / "after")
    assert gain_good > 0 > mean_gain(bad)


def test_the_old_policy_is_that_before_the_first_of_several_inner_steps(model_dir) -> None:
    sequences = random_sequences(6, seed=4)
    several = Trainer(model_dir).step(sequences, dataclasses.replace(OPTIONS, inner_steps=4, learning_rate=0.02))
    once = Trainer(model_dir).step(sequences, dataclasses.replace(OPTIONS, learning_rate=0.02))
    assert several["clipFraction"] > 0.0
    for name in ("klEngine", "tisMean", "tisCapped", "entropy"):
        assert several[name] == once[name]


def test_the_gradient_norm_that_is_applied_is_bounded(model_dir) -> None:
    sequences = random_sequences(6, seed=4)
    options = dataclasses.replace(OPTIONS, max_grad_norm=1e-3)
    trainer = Trainer(model_dir)
    applied: list[float] = []
    update = trainer.optimizer.adamw.step
    trainer.optimizer.adamw.step = lambda: (  # type: ignore[method-assign]
        applied.append(torch.nn.utils.get_total_norm([p.grad for p in trainer.parameters.values()]).item()), update()
    )  # fmt: skip
    metrics = trainer.step(sequences, options)
    assert metrics["gradNorm"] > 1e-2
    assert applied == [pytest.approx(1e-3, rel=1e-2)]


@pytest.mark.parametrize("inner_steps", [1, 3])
@pytest.mark.parametrize("poison", ["advantage", "logits", "engine", "late"])
def test_a_step_that_is_not_finite_leaves_weights_and_optimizer_as_they_were(model_dir, poison, inner_steps) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(4, seed=6), OPTIONS)  # a first step, so that the optimizer has moments
    sequences = random_sequences(4, seed=7)
    options = dataclasses.replace(OPTIONS, inner_steps=inner_steps)
    if poison == "advantage":
        sequences[2] = dataclasses.replace(sequences[2], advantage=float("nan"))
    if poison == "engine":
        sequences[2].engine_logp[-1] = float("nan")
    if poison == "logits":
        with torch.no_grad():
            trainer.parameters["model.layers.1.mlp.down_proj.weight"][0, 0] = float("inf")
    if poison == "late":  # the last update of the step is the one that fails
        update, calls = trainer.update, []

        def fail_last(loss: float, rate: float, norm: float) -> float:
            calls.append(loss)
            return update(float("nan") if len(calls) == inner_steps else loss, rate, norm)

        trainer.update = fail_last  # type: ignore[method-assign]
    before, state, updates = weights(trainer), state_of(trainer), trainer.optimizer.updates
    state = {name: value.clone() for name, value in state.items()}
    with pytest.raises(TrainerError) as raised:
        trainer.step(sequences, options)
    assert raised.value.code == "trainer.not_finite"
    assert same(weights(trainer), before)
    assert same(state_of(trainer), state)
    assert trainer.optimizer.updates == updates
    assert all(p.grad is None for p in trainer.parameters.values())


def test_a_caller_that_goes_away_stops_the_step_with_nothing_changed(model_dir) -> None:
    trainer = Trainer(model_dir)
    before = weights(trainer)
    answers = iter([False, False, True])
    with pytest.raises(TrainerError) as raised:
        trainer.step(random_sequences(8, seed=1), dataclasses.replace(OPTIONS, micro_batch_tokens=1), should_stop=lambda: next(answers))
    assert raised.value.code == "trainer.cancelled"
    assert same(weights(trainer), before)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tokens": np.array([1, 97, 3], np.int32)}, "trainer.bad_sequence"),
        ({"tokens": np.array([1, 2], np.int32)}, "trainer.bad_sequence"),
        ({"mask": np.array([1, 0, 0], np.uint8)}, "trainer.empty_batch"),
        ({name: np.ones(200, kind) for name, kind in (("tokens", np.int32), ("mask", np.uint8), ("engine_logp", np.float32))},
         "trainer.context_exceeded"),
    ],
)  # fmt: skip
def test_a_sequence_that_cannot_be_trained_on_is_refused_by_name(model_dir, change, code) -> None:
    fine = TrainSequence("g/0", np.array([1, 2, 3], np.int32), np.ones(3, np.uint8), np.zeros(3, np.float32), 1.0, 0)
    with pytest.raises(TrainerError) as raised:
        Trainer(model_dir).step([dataclasses.replace(fine, **change)], OPTIONS)
    assert raised.value.code == code


def test_a_trainer_refuses_a_message_that_lacks_an_option_and_has_no_default_for_it() -> None:
    for kind, message in ((GrpoOptions, pb.StepOptions), (SftOptions, pb.SftOptions)):
        whole = {field.name: 1 if field.type != "str" else "x" for field in dataclasses.fields(kind)}
        assert {field.name for field in message.DESCRIPTOR.fields} == set(whole)
        assert options_of(kind, message(**whole)) == kind(**whole)
        for name in whole:
            with pytest.raises(TypeError):
                kind(**{other: value for other, value in whole.items() if other != name})
            given = message(**whole)
            given.ClearField(name)
            with pytest.raises(TrainerError, match=rf"{message.DESCRIPTOR.name} lacks {name}:"):
                options_of(kind, given)


@pytest.mark.parametrize("name", ["device", "dtype", "threads", "seed", "ranks", "lora-rank", "lora-alpha", "lora-targets"])
def test_a_trainer_process_has_no_default_of_what_the_recipe_states(capsys, name) -> None:
    given = {
        **{"device": "cpu", "dtype": "float32", "threads": "1", "seed": "3", "ranks": "1"},
        **{"published-dtype": "float32", "lora-rank": "4", "lora-alpha": "8", "lora-targets": "q_proj"},
    }
    argv = ["--serve", "trainer", "--model", "m"]
    assert vars(arguments([*argv, *(f"--{key}={value}" for key, value in given.items())]))["lora_targets"] == "q_proj"
    with pytest.raises(SystemExit):
        arguments([*argv, *(f"--{key}={value}" for key, value in given.items() if key != name)])
    assert f"a trainer needs --{name}" in capsys.readouterr().err


def examples(count: int, seed: int) -> list[SftExample]:
    return [SftExample(s.tokens % 13, s.mask) for s in random_sequences(count, seed)]


def test_sft_lowers_the_loss_and_tells_its_progress(model_dir) -> None:
    trainer = Trainer(model_dir)
    seen: list[tuple[float, float]] = []
    options = sft_options(learning_rate=5e-3, epochs=6, batch_sequences=8, warmup_share=0.1, seed=1)
    metrics = trainer.sft(examples(48, 1), options, lambda done, loss: seen.append((done, loss)))
    assert metrics["firstLoss"] == pytest.approx(seen[0][1])
    assert metrics["loss"] < 0.7 * metrics["firstLoss"]
    assert [done for done, _ in seen] == pytest.approx([(at + 1) / 36 for at in range(36)])
    assert metrics["trainedTokens"] == 6 * sum(int(e.mask[1:].sum()) for e in examples(48, 1))
    # RL starts with an optimizer that has no memory of SFT
    assert state_of(trainer) == {} and trainer.optimizer.updates == 0


def test_the_loss_of_sft_is_the_mean_over_the_masked_tokens_of_a_batch(model_dir) -> None:
    given = examples(5, 2)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float64).eval()
    total, count = 0.0, 0
    for example in given:
        table = torch.log_softmax(model(input_ids=torch.tensor(example.tokens.astype(np.int64))[None]).logits[0], -1)
        for t in range(1, len(example.tokens)):
            if example.mask[t]:
                total, count = total - table[t - 1, example.tokens[t]].item(), count + 1
    seen: list[float] = []
    options = sft_options(learning_rate=1e-3, epochs=1, batch_sequences=5)
    Trainer(model_dir).sft(given, options, lambda _, loss: seen.append(loss))
    assert seen == [pytest.approx(total / count, abs=1e-5)]


def test_sft_is_the_same_for_the_same_seed_and_another_for_another(model_dir) -> None:
    ends = []
    for seed in (1, 1, 2):
        trainer = Trainer(model_dir)
        trainer.sft(examples(20, 3), sft_options(learning_rate=1e-3, epochs=2, batch_sequences=4, seed=seed))
        ends.append(weights(trainer))
    assert same(ends[0], ends[1])
    assert not same(ends[0], ends[2])


def test_sft_that_ends_in_numbers_that_are_not_finite_changes_nothing(model_dir) -> None:
    trainer = Trainer(model_dir)
    trainer.step(random_sequences(4, seed=6), OPTIONS)
    before, state = weights(trainer), {name: v.clone() for name, v in state_of(trainer).items()}
    with pytest.raises(TrainerError) as raised:
        trainer.sft(examples(40, 4), sft_options(learning_rate=1e38, epochs=2, batch_sequences=4, warmup_share=0.0))
    assert raised.value.code == "trainer.not_finite"
    assert same(weights(trainer), before)
    assert same(state_of(trainer), state)


def test_the_learning_rate_rises_over_the_updates_of_a_fresh_optimizer(model_dir, tmp_path) -> None:
    options = grpo_options(learning_rate=1e-3, warmup_updates=3)
    trainer = Trainer(model_dir)
    assert [trainer.step(random_sequences(2, seed=4), options)["lr"] for _ in range(2)] == pytest.approx([2.5e-4, 5e-4])
    trainer.save(tmp_path / "saved", True)
    resumed = Trainer(model_dir)
    resumed.load(tmp_path / "saved")
    assert [resumed.step(random_sequences(2, seed=4), options)["lr"] for _ in range(3)] == pytest.approx([7.5e-4, 1e-3, 1e-3])
    resumed.reset(optimizer=True, reference=False)
    assert resumed.step(random_sequences(2, seed=4), options)["lr"] == pytest.approx(2.5e-4)


def test_the_learning_rate_rises_over_the_warm_up_and_falls_along_a_cosine() -> None:
    options = sft_options(learning_rate=1.0, warmup_share=0.1)
    rates = [learning_rate_at(step, 100, options) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 11) and rates[10] == 1.0
    assert rates[:11] == sorted(rates[:11]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.5) and rates[99] < 0.001


def test_micro_batches_hold_every_sequence_once_within_their_bound() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        lengths = draw.integers(1, 200, size=int(draw.integers(1, 60))).tolist()
        bound = int(draw.integers(1, 2000))
        batches = micro_batches(lengths, bound)
        assert sorted(at for batch in batches for at in batch) == list(range(len(lengths)))
        for batch in batches:
            assert len(batch) == 1 or len(batch) * max(lengths[at] for at in batch) <= bound


def test_an_epoch_holds_every_example_once_with_alike_lengths_together() -> None:
    lengths = np.random.default_rng(1).integers(10, 300, size=1000).tolist()
    batches = epoch_batches(lengths, 16, seed=3, epoch=0)
    assert sorted(at for batch in batches for at in batch) == list(range(1000))
    assert batches == epoch_batches(lengths, 16, seed=3, epoch=0)
    assert batches != epoch_batches(lengths, 16, seed=3, epoch=1)
    padded = sum(len(batch) * max(lengths[at] for at in batch) for batch in batches)
    assert padded < 1.1 * sum(lengths)
