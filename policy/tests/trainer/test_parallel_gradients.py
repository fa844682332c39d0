"""Fine-tuning with a thread for each part of a batch: the loss and weights of one thread, and the same bits each time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from test_fine_tuning import examples, without_clock
from test_packing import alike
from test_trainer import same, weights
from tiny_models import random_sequences, tiny_model, tiny_model_dir
from trainer_support import Trainer, sft_options
from troupe_policy.trainer.batch import parallel_gradients
from troupe_policy.trainer.batch.micro_batch import Batch

SFT = sft_options(learning_rate=5e-3, epochs=2, batch_sequences=5, seed=1)


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5)


def gradient_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The gradient of one batch of nine examples; the weights stay as they are."""
    kept: dict[str, torch.Tensor] = {}

    def update(loss: float, rate: float, max_grad_norm: float) -> float:
        kept.update({name: p.grad.clone() for name, p in trainer.parameters.items()})
        return 1.0

    trainer.update = update  # type: ignore[method-assign]
    trainer.sft(examples(9), dataclasses.replace(SFT, epochs=1, batch_sequences=9))
    del trainer.update
    return kept


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}])
def test_two_threads_learn_what_one_learns_and_the_same_bits_each_time(
    changes: dict, tmp_path: Path, two_threads: None
) -> None:
    directory = tiny_model_dir(tmp_path / "m", seed=5, **changes)
    alone, one, other = Trainer(directory), Trainer(directory), Trainer(directory)
    alone.parallel = None
    alike(gradient_of(alone), gradient_of(one))
    want = alone.sft(examples(23), SFT)
    assert one.parallel is not None and one.parallel.threads == 2
    seen: set[int] = set()
    count = one.logprobs
    one.logprobs = lambda micro, *rest: seen.add(torch.get_num_threads()) or count(micro, *rest)  # type: ignore[method-assign]
    beside: set[int] = set()
    got = one.sft(examples(23), SFT, lambda *_: beside.add(torch.get_num_threads()))
    assert seen == beside == {1} and torch.get_num_threads() == 2
    assert got["loss"] == pytest.approx(want["loss"], rel=1e-3) and got["trainedTokens"] == want["trainedTokens"]
    assert without_clock(other.sft(examples(23), SFT)) == without_clock(got)
    assert same(weights(other), weights(one))


def test_an_error_of_one_thread_is_raised_when_all_have_ended_and_nothing_has_changed(
    model_dir: Path, two_threads: None
) -> None:
    trainer = Trainer(model_dir)
    before = {name: value.clone() for name, value in weights(trainer).items()}
    running, run = [0], trainer.logprobs

    def fail_once(micro, *rest):  # type: ignore[no-untyped-def]
        running[0] += 1
        if running[0] == 4:
            raise RuntimeError("no memory left")
        return run(micro, *rest)

    trainer.logprobs = fail_once  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no memory left"):
        trainer.sft(examples(23), SFT)
    assert running[0] == 4
    assert same(weights(trainer), before)
    assert all(parameter.grad is None for parameter in trainer.parameters.values())


def test_each_sequence_is_in_one_part_and_the_threads_together_keep_the_bound(model_dir: Path) -> None:
    trainer, sequences = Trainer(model_dir), random_sequences(40, seed=2)
    lengths = [len(s.tokens) for s in sequences]
    batch = Batch([s.tokens for s in sequences], [s.mask > 0 for s in sequences], [0.0] * 40, None, [1.0] * 40)
    for threads, bound in ((2, 200), (3, 10_000), (8, 8)):
        cut = trainer.cut_for_threads(batch, bound, threads)
        assert len(cut) == threads
        assert sorted(at for share in cut for part in share for at in part) == list(range(40))
        largest = [max(sum(lengths[at] for at in part) for part in share if len(part) > 1) for share in cut if any(len(part) > 1 for part in share)]
        assert sum(largest) <= bound


def test_one_thread_or_a_large_model_computes_one_micro_batch_at_a_time(
    monkeypatch: pytest.MonkeyPatch, two_threads: None
) -> None:
    model, cpu = tiny_model(), torch.device("cpu")
    assert parallel_gradients.parallel_gradients(model, cpu) is not None
    assert parallel_gradients.parallel_gradients(model, torch.device("cuda")) is None
    monkeypatch.setattr(parallel_gradients, "MOST_PARAMETERS", 100)
    assert parallel_gradients.parallel_gradients(model, cpu) is None
    monkeypatch.undo()
    torch.set_num_threads(1)
    assert parallel_gradients.parallel_gradients(model, cpu) is None
