"""A step of several updates that dies on its way: it goes on from its checkpoint and ends as if it had never stopped."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_fine_tuning import without_clock
from test_trainer import same, weights
from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer, grpo_options
from troupe_policy.model.checkpoint import CheckpointError
from troupe_policy.trainer.partial_checkpoints import PartialCheckpoints
from troupe_policy.trainer.trainer import TrainerError

torch.set_num_threads(1)
HERE = Path(__file__).parent
# Six updates, with all that a checkpoint has to bring back: π_old, the reference's log-probabilities, moments, sums.
OPTIONS = grpo_options(
    learning_rate=0.01, micro_batch_tokens=90, mini_batches=3, inner_steps=2, kl_coef=0.1, warmup_updates=4, mini_batch_seed=3
)
KILLED_AFTER = 4


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("model") / "m", seed=5)


def batch(seed: int = 4):
    return random_sequences(12, seed=seed)


def moments(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.optimizer.named_state()}


def die_in_the_middle(model: str, prefix: str) -> None:
    """Trains with a checkpoint after every update; kills this process once the fourth checkpoint is on disk."""
    trainer = Trainer(model)
    trainer.step(batch(1), dataclasses.replace(OPTIONS, mini_batches=1))

    def killed(_path: str, updates: int, _saved: object) -> None:
        if updates == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.step(batch(), OPTIONS, PartialCheckpoints(prefix, 1, owner="2/7"), on_saved=killed)


def test_a_step_whose_process_is_killed_goes_on_with_the_weights_and_metrics_of_one_that_was_not(model_dir, tmp_path) -> None:
    whole = Trainer(model_dir)
    whole.step(batch(1), dataclasses.replace(OPTIONS, mini_batches=1))
    want = whole.step(batch(), OPTIONS)
    prefix = str(tmp_path / "step-000002-u")
    path = os.pathsep.join([str(HERE), *map(str, HERE.parents[:2]), os.environ.get("PYTHONPATH", "")])
    code = f"import test_partial_steps as t; t.die_in_the_middle({str(model_dir)!r}, {prefix!r})"
    died = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr

    done: list[float] = []
    other = Trainer(model_dir, seed=9)
    update = other.update
    other.update = lambda *given: (done.append(given[0]), update(*given))[1]  # type: ignore[method-assign]
    got = other.step(batch(), OPTIONS, PartialCheckpoints(resume=f"{prefix}{KILLED_AFTER:06}", owner="2/7"))
    assert len(done) == 2
    assert without_clock(got) == without_clock(want)
    assert same(weights(other), weights(whole)) and same(moments(other), moments(whole))
    assert other.optimizer.updates == whole.optimizer.updates == 8
    # The reference came back, too: the next step has the same penalty.
    assert without_clock(other.step(batch(6), OPTIONS)) == without_clock(whole.step(batch(6), OPTIONS))


@pytest.mark.parametrize("correction", ["none", "engine-logprobs"])
def test_a_step_goes_on_whatever_its_old_policy_is(model_dir, tmp_path, correction) -> None:
    options = dataclasses.replace(OPTIONS, correction=correction, kl_coef=0.0)
    whole, first, second = Trainer(model_dir), Trainer(model_dir), Trainer(model_dir)
    saved: list[str] = []
    want = whole.step(batch(), options)
    asked = PartialCheckpoints(str(tmp_path / "u"), 1)
    assert without_clock(first.step(batch(), options, asked, on_saved=lambda path, *_: saved.append(path))) == without_clock(want)
    assert [path[-1] for path in saved] == list("12345")  # no checkpoint after the last update: the step is complete
    for path in (saved[0], saved[3]):
        assert without_clock(second.step(batch(), options, PartialCheckpoints(resume=path))) == without_clock(want)
        assert same(weights(second), weights(whole))


def test_a_checkpoint_of_another_step_batch_or_options_is_refused_and_changes_nothing(model_dir, tmp_path) -> None:
    prefix = str(tmp_path / "u")
    Trainer(model_dir).step(batch(), OPTIONS, PartialCheckpoints(prefix, 2, owner="2/7"))
    trainer = Trainer(model_dir)
    before, resume = weights(trainer), PartialCheckpoints(resume=f"{prefix}000002", owner="2/7")
    other_advantage = [dataclasses.replace(batch()[0], advantage=9.0), *batch()[1:]]
    for sequences, options, asked in (
        (batch(), OPTIONS, dataclasses.replace(resume, owner="2/8")),
        (other_advantage, OPTIONS, resume),
        (batch(), dataclasses.replace(OPTIONS, clip_low=0.1), resume),
    ):
        with pytest.raises(CheckpointError) as raised:
            trainer.step(sequences, options, asked)
        assert raised.value.code == "trainer.other_call"
        assert same(weights(trainer), before) and not trainer.reference.is_taken and trainer.optimizer.updates == 0


def test_a_checkpoint_of_another_number_of_ranks_is_refused_though_it_holds_no_tensors_of_its_own(model_dir, tmp_path) -> None:
    """With `engine-logprobs` and without a KL term only weights, moments and the sums of each rank are saved."""
    options = dataclasses.replace(OPTIONS, correction="engine-logprobs", kl_coef=0.0, inner_steps=1)
    saved: list[str] = []
    Trainer(model_dir).step(batch(), options, PartialCheckpoints(str(tmp_path / "u"), 1, owner="2/7"), on_saved=lambda path, *_: saved.append(path))
    manifest = Path(saved[0]) / "manifest.json"
    fields = json.loads(manifest.read_text())
    fields["optimizer"]["ranks"] = 2
    manifest.write_text(json.dumps(fields))
    other = Trainer(model_dir)
    before = weights(other)
    with pytest.raises(CheckpointError, match="written by 2 ranks, and this trainer has 1") as refused:
        other.step(batch(), options, PartialCheckpoints(resume=saved[0], owner="2/7"))
    assert refused.value.code == "trainer.other_call"
    assert same(weights(other), before)


def test_a_step_that_fails_after_it_went_on_leaves_the_trainer_as_it_was_before_the_call(model_dir, tmp_path) -> None:
    prefix = str(tmp_path / "u")
    Trainer(model_dir).step(batch(), OPTIONS, PartialCheckpoints(prefix, 2))
    trainer = Trainer(model_dir)
    before, update = weights(trainer), trainer.update
    trainer.update = lambda _loss, *given: update(float("nan"), *given)  # type: ignore[method-assign]
    with pytest.raises(TrainerError):
        trainer.step(batch(), OPTIONS, PartialCheckpoints(resume=f"{prefix}000004"))
    assert same(weights(trainer), before) and trainer.optimizer.updates == 0 and not trainer.reference.is_taken
