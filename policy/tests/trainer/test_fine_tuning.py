"""SFT on demonstrations in files: the same as in memory, checkpoints on the way, and going on from one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_trainer import same, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer, sft_options, write_examples
from troupe_policy.model.checkpoint import CheckpointError
from troupe_policy.trainer.batch.example_files import ExampleFiles, ExampleFilesError, SftExample
from troupe_policy.trainer.partial_checkpoints import PartialCheckpoints
from troupe_policy.trainer.service import TrainerService
from troupe_policy.trainer.trainer import TrainerError

torch.set_num_threads(1)
SFT = sft_options(learning_rate=5e-3, epochs=3, batch_sequences=5, seed=1)
NONE = PartialCheckpoints()


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5)


def examples(count: int) -> list[SftExample]:
    return [SftExample(s.tokens % 13, s.mask) for s in random_sequences(count, seed=8)]


def without_clock(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if key not in ("tokensPerSecond", "seconds", "cpuMs", "maxRssBytes")}


@pytest.mark.parametrize("per_file", [1, 4, 100])
def test_files_give_every_example_and_length_that_was_written(tmp_path, per_file) -> None:
    given = examples(11)
    files = ExampleFiles(tmp_path / "e", write_examples(tmp_path / "e", given, per_file))
    assert len(files) == 11 and files.lengths.tolist() == [len(one.tokens) for one in given]
    for one, other in zip(given, files, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist() and one.mask.tolist() == other.mask.tolist()


def test_files_of_another_digest_or_damaged_ones_are_refused(model_dir, tmp_path) -> None:
    digest = write_examples(tmp_path / "e", examples(6), 3)
    with pytest.raises(ExampleFilesError, match="expected 000000000000"):
        ExampleFiles(tmp_path / "e", "0" * 64)
    file = tmp_path / "e/examples-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    trainer = Trainer(model_dir)
    with pytest.raises(TrainerError, match="examples-00003") as raised:
        trainer.sft_files(str(tmp_path / "e"), digest, SFT, NONE)
    assert raised.value.code == "trainer.bad_examples"


@pytest.mark.parametrize("content", [None, b"no safetensors"])
def test_a_rank_that_does_not_verify_a_file_refuses_it_by_the_same_error_when_it_is_gone_or_damaged(tmp_path, content) -> None:
    digest = write_examples(tmp_path / "e", examples(6), 3)
    file = tmp_path / "e/examples-00000.safetensors"
    file.unlink() if content is None else file.write_bytes(content)
    for rank in (0, 1):
        with pytest.raises(ExampleFilesError, match="examples-00000"):
            ExampleFiles(tmp_path / "e", digest, rank=rank, ranks=2)


def test_fine_tuning_from_files_is_that_from_memory_bit_for_bit(model_dir, tmp_path) -> None:
    given = examples(23)
    one, other = Trainer(model_dir), Trainer(model_dir)
    want = one.sft(given, SFT)
    got = other.sft_files(str(tmp_path / "e"), write_examples(tmp_path / "e", given, 4), SFT, NONE)
    assert without_clock(got) == without_clock(want)
    assert same(weights(other), weights(one))


class Killed(BaseException):
    pass


def test_an_sft_that_is_cut_off_goes_on_from_its_checkpoint_and_ends_as_if_it_had_never_stopped(model_dir, tmp_path) -> None:
    digest = write_examples(tmp_path / "e", examples(23), 4)
    asked = (str(tmp_path / "e"), digest, SFT)
    whole = Trainer(model_dir)
    want = whole.sft_files(*asked, NONE)
    assert want["steps"] == 15
    saved: list[tuple[str, int]] = []

    def stop(done: float, _loss: float) -> None:
        if done * 15 > 9.5:
            raise Killed

    first = Trainer(model_dir)
    with pytest.raises(Killed):
        first.sft_files(*asked, PartialCheckpoints(str(tmp_path / "sft-"), 4), on_progress=stop, on_saved=lambda path, updates, _: saved.append((path, updates)))
    first.writer.wait()
    assert saved == [(str(tmp_path / "sft-000004"), 4), (str(tmp_path / "sft-000008"), 8)]
    done: list[float] = []
    second = Trainer(model_dir, seed=9)
    got = second.sft_files(*asked, PartialCheckpoints("", 0, saved[-1][0]), on_progress=lambda share, _: done.append(share))
    assert len(done) == 7 and done[0] == 9 / 15
    assert without_clock(got) == without_clock(want)
    assert same(weights(second), weights(whole))
    assert second.optimizer.updates == 0


def test_a_checkpoint_of_other_demonstrations_or_options_is_refused_and_changes_nothing(model_dir, tmp_path) -> None:
    digest = write_examples(tmp_path / "e", examples(12), 4)
    other = write_examples(tmp_path / "f", examples(11), 4)
    Trainer(model_dir).sft_files(str(tmp_path / "e"), digest, SFT, PartialCheckpoints(str(tmp_path / "sft-"), 4))
    resume = PartialCheckpoints(resume=str(tmp_path / "sft-000004"))
    trainer = Trainer(model_dir)
    before = weights(trainer)
    for asked in ((str(tmp_path / "f"), other, SFT), (str(tmp_path / "e"), digest, sft_options(epochs=2))):
        with pytest.raises(CheckpointError) as raised:
            trainer.sft_files(*asked, resume)
        assert raised.value.code == "trainer.other_call"
        assert same(weights(trainer), before)


def test_only_the_tokens_of_a_batch_are_read(model_dir, tmp_path, monkeypatch) -> None:
    given = examples(20)
    trainer = Trainer(model_dir)
    held: list[int] = []
    files = ExampleFiles(tmp_path / "e", write_examples(tmp_path / "e", given, 4))
    read = ExampleFiles.__getitem__

    def counted(self, at):
        held.append(at)
        return read(self, at)

    monkeypatch.setattr(ExampleFiles, "__getitem__", counted)
    batches: list[list[int]] = []

    def taken(_done: float, _loss: float) -> None:
        batches.append(sorted(set(held)))
        held.clear()

    trainer.sft(files, sft_options(batch_sequences=5), taken)
    # The first batch also counts the trained tokens of all examples; later ones read their own five.
    assert [len(batch) for batch in batches[1:]] == [5, 5, 5]


def test_a_checkpoint_that_cannot_be_begun_is_left_out_and_the_sft_goes_on(model_dir, tmp_path) -> None:
    digest = write_examples(tmp_path / "e", examples(23), 4)
    whole, trainer = Trainer(model_dir), Trainer(model_dir)
    want = whole.sft_files(str(tmp_path / "e"), digest, SFT, NONE)
    blocked, saved = tmp_path / "blocked", []
    blocked.write_text("a file where the checkpoints' folder would be")

    def unblock(done: float, _loss: float) -> None:
        if blocked.is_file() and done * 15 > 5.5:
            blocked.unlink()

    got = trainer.sft_files(
        str(tmp_path / "e"), digest, SFT, PartialCheckpoints(str(blocked / "sft-"), 4),
        on_progress=unblock, on_saved=lambda _path, updates, _saved: saved.append(updates),
    )  # fmt: skip
    assert saved == [8, 12]
    assert without_clock(got) == without_clock(want) and same(weights(trainer), weights(whole))


def test_an_error_of_the_system_ends_a_call_with_an_event_that_has_a_code() -> None:
    def prepare():
        raise OSError("disk full")

    (event,) = TrainerService(SimpleNamespace, 0)._run(prepare)
    assert event.last and (event.error_code, event.error_message) == ("trainer.failed", "disk full")
