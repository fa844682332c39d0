"""Fine-tuning with a process for each part of a batch: the loss and weights of one process, and the same bits each
time; errors and deaths of the forked ones. test_parallel_gradients.py runs these tests.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_fine_tuning import examples, without_clock
from test_packing import alike
from test_trainer import same, weights
from tiny_models import tiny_model, tiny_model_dir
from trainer_support import Trainer, sft_options, write_examples
from troupe_policy.trainer import parallel_gradients, service
from troupe_policy.trainer.options import TrainerError
from troupe_policy.trainer.partial_checkpoints import NO_CHECKPOINTS

# Folder of the package, for processes of tests.
PACKAGE = Path(parallel_gradients.__file__).parents[2]
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
def test_two_processes_learn_what_one_learns_and_the_same_bits_each_time(
    changes: dict, tmp_path: Path, two_threads: None
) -> None:
    directory = tiny_model_dir(tmp_path / "m", seed=5, **changes)
    alone, one, other = Trainer(directory), Trainer(directory), Trainer(directory)
    alone.parallel = None
    alike(gradient_of(alone), gradient_of(one))
    want = alone.sft(examples(23), SFT)
    assert one.parallel is not None and one.parallel.processes == 2
    seen: set[int] = set()
    count = one.logprobs
    one.logprobs = lambda micro, *rest: seen.add(torch.get_num_threads()) or count(micro, *rest)  # type: ignore[method-assign]
    beside: set[int] = set()
    got = one.sft(examples(23), SFT, lambda *_: beside.add(torch.get_num_threads()))
    assert seen == beside == {1} and torch.get_num_threads() == 2
    assert got["loss"] == pytest.approx(want["loss"], rel=1e-3) and got["trainedTokens"] == want["trainedTokens"]
    assert without_clock(other.sft(examples(23), SFT)) == without_clock(got)
    assert same(weights(other), weights(one))


def child_of(trainer: Trainer) -> int:
    """Pid of the trainer's forked process."""
    assert trainer.parallel is not None
    [fork] = trainer.parallel._forks
    assert fork._process.pid is not None
    return fork._process.pid


def has_ended(pid: int) -> bool:
    """True once the process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until_ended(pid: int) -> None:
    deadline = time.monotonic() + 20
    while not has_ended(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


@pytest.mark.parametrize("where", ["here", "fork"])
def test_an_error_of_one_process_is_raised_when_all_have_ended_and_nothing_has_changed(
    where: str, model_dir: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, calls, run = os.getpid(), [0], Trainer.logprobs

    def fail_once(self: Trainer, *given: Any) -> Any:
        if (os.getpid() == own) == (where == "here"):
            calls[0] += 1
            if calls[0] == 3:
                raise RuntimeError("no memory left")
        return run(self, *given)

    monkeypatch.setattr(Trainer, "logprobs", fail_once)
    trainer = Trainer(model_dir)
    before = {name: value.clone() for name, value in weights(trainer).items()}
    with pytest.raises(RuntimeError, match="no memory left"):
        trainer.sft(examples(23), SFT)
    assert same(weights(trainer), before)
    assert all(parameter.grad is None for parameter in trainer.parameters.values())
    # No answer of the failed batch is taken for one of the next.
    monkeypatch.undo()
    assert without_clock(trainer.sft(examples(23), SFT)) == without_clock(Trainer(model_dir).sft(examples(23), SFT))


def test_a_killed_fork_is_an_error_and_changes_nothing(model_dir: Path, two_threads: None) -> None:
    trainer = Trainer(model_dir)
    before = {name: value.clone() for name, value in weights(trainer).items()}
    os.kill(child_of(trainer), signal.SIGKILL)
    with pytest.raises(parallel_gradients.ForkLost, match="ended with the code -9"):
        trainer.sft(examples(23), SFT)
    assert same(weights(trainer), before)


def test_a_fork_that_stops_is_an_error_after_a_deadline(
    model_dir: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(model_dir)
    monkeypatch.setattr(parallel_gradients, "ANSWER_S", 0.5)
    os.kill(child_of(trainer), signal.SIGSTOP)
    with pytest.raises(parallel_gradients.ForkLost, match="has not answered"):
        trainer.sft(examples(23), SFT)
    os.kill(child_of(trainer), signal.SIGKILL)


def test_forks_end_with_their_trainer_and_with_their_process(model_dir: Path, two_threads: None) -> None:
    trainer = Trainer(model_dir)
    pid = child_of(trainer)
    del trainer
    gc.collect()
    until_ended(pid)

    script = (
        "import sys, time, torch; torch.set_num_threads(2)\n"
        "from troupe_policy.trainer.trainer import Trainer\n"
        "trainer = Trainer(sys.argv[1], 'cpu', 'float32', 0, lora=None, checkpointing=False)\n"
        "print(trainer.parallel._forks[0]._process.pid, flush=True); time.sleep(60)\n"
    )
    # A process of its own: a fork of this one could not use OpenMP's threads, which this one has used.
    parent = subprocess.Popen([sys.executable, "-c", script, str(model_dir)], stdout=subprocess.PIPE, text=True, cwd=PACKAGE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert not has_ended(pid)
    parent.kill()
    parent.wait()
    until_ended(pid)
    parent.stdout.close()


def test_one_thread_or_a_large_model_computes_one_micro_batch_at_a_time(
    monkeypatch: pytest.MonkeyPatch, two_threads: None
) -> None:
    model, cpu = tiny_model(), torch.device("cpu")
    made = lambda device: parallel_gradients.parallel_gradients(model, device, lambda part: part)  # noqa: E731
    assert made(cpu) is not None
    assert made(torch.device("cuda")) is None
    monkeypatch.setattr(parallel_gradients, "MOST_PARAMETERS", 100)
    assert made(cpu) is None
    monkeypatch.undo()
    torch.set_num_threads(1)
    assert made(cpu) is None


def test_a_fork_that_takes_nothing_is_an_error_after_a_deadline(
    model_dir: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_gradients, "ANSWER_S", 0.5)
    trainer = Trainer(model_dir)
    assert trainer.parallel is not None
    [fork] = trainer.parallel._forks
    os.kill(child_of(trainer), signal.SIGSTOP)
    with pytest.raises(parallel_gradients.ForkLost, match="not read its share"):
        fork.ask([b"more than a socket holds" * 100_000])  # type: ignore[list-item]
    fork.end()


def test_a_fork_that_hangs_at_its_start_is_ended(model_dir: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    own, started = os.getpid(), parallel_gradients.get_context("fork").Process.start
    pids: list[int] = []

    def start(process: Any) -> None:
        started(process)
        pids.append(process.pid)

    monkeypatch.setattr(parallel_gradients.get_context("fork").Process, "start", start)
    monkeypatch.setattr(parallel_gradients, "START_S", 0.5)
    monkeypatch.setattr(parallel_gradients, "show_command_line", lambda _: os.getpid() == own or time.sleep(60))
    with pytest.raises(parallel_gradients.ForkLost, match="has not answered"):
        Trainer(model_dir)
    assert [has_ended(pid) for pid in pids] == [True]


def test_gradients_add_up_over_batches_and_in_fewer_parts_than_processes(model_dir: Path, two_threads: None) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(0, 2))
    made = parallel_gradients.parallel_gradients(model, torch.device("cpu"), lambda part: model[0](part).sum())
    assert made is not None
    weight, one = model[0].weight, torch.tensor([[1.0, 2.0, 3.0]])
    for times in (1, 2):
        assert made.backward([[one], []]) == pytest.approx(model[0](one).sum().item())
        assert weight.grad is not None and torch.equal(weight.grad, times * one.expand(2, 3))
    # The forks compute with what this process changes.
    with torch.no_grad():
        weight.zero_()
        model[0].bias.fill_(1.0)
    assert made.backward([[one], [one]]) == pytest.approx(4.0)


def test_a_fork_that_cannot_compute_gradients_leaves_the_trainer_one_process(
    model_dir: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, backward = os.getpid(), torch.Tensor.backward

    def refused(self: torch.Tensor, *given: Any) -> None:
        if os.getpid() != own:
            raise RuntimeError("no threads in a fork")
        backward(self, *given)

    monkeypatch.setattr(torch.Tensor, "backward", refused)
    trainer = Trainer(model_dir)
    assert trainer.parallel is None
    assert trainer.sft(examples(23), SFT)["sequences"] == 23


def test_a_trainer_that_lost_a_fork_says_so_and_ends(
    model_dir: Path, tmp_path: Path, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(service, "exit_now", ended.append)
    monkeypatch.setattr(service, "LOST_REPLY_S", 0.0)
    served = service.TrainerService(lambda: Trainer(model_dir), 2)
    digest = write_examples(tmp_path / "e", examples(23), 100)
    os.kill(child_of(served._trainer), signal.SIGKILL)
    with pytest.raises(TrainerError, match="the trainer ends: a process .* has ended with the code -9") as lost:
        served._led("sft_files", str(tmp_path / "e"), digest, SFT, NO_CHECKPOINTS)
    assert lost.value.code == "trainer.rank_lost"
    deadline = time.monotonic() + 20
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended == [1]
