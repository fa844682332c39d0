"""A step's stream: its bound on tokens is that of the trainer's command line, which follows from the recipe."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import tiny_model_dir
from trainer_support import Trainer, grpo_options
from troupe_policy.generated import policy_pb2 as pb
from troupe_policy.server import arguments
from troupe_policy.trainer.options import TrainerError
from troupe_policy.trainer.received import received
from troupe_policy.trainer.service import TrainerService


def parts(lengths, **options):
    yield pb.StepPart(options=pb.StepOptions(**options))
    for length in lengths:
        tokens, ones = np.arange(length, dtype="<i4"), np.ones(length)
        arrays = {"tokens": tokens.tobytes(), "mask": ones.astype("u1").tobytes(), "engine_logp": (-ones).astype("<f4").tobytes()}
        yield pb.StepPart(sequence=pb.Sequence(trajectory="g/0", **arrays))


def test_a_call_of_as_many_tokens_as_the_bound_is_read_and_one_of_more_is_refused_where_it_exceeds_it() -> None:
    _, _, sequences = received(parts([5, 7, 3]), 15)
    assert [one.tokens.tolist() for one in sequences] == [list(range(5)), list(range(7)), list(range(3))]
    left = parts([5, 7, 4, 6])
    with pytest.raises(TrainerError, match=r"more than 15 tokens, this trainer's --max-step-tokens") as refused:
        received(left, 15)
    assert refused.value.code == "trainer.batch_too_large"
    assert len(next(left).sequence.mask) == 6


def test_the_command_line_sets_the_bound() -> None:
    given = ["--serve", "trainer", "--model", "m", "--device", "cpu", "--dtype", "float32", "--published-dtype", "float32"]
    given += ["--threads", "1", "--seed", "0", "--ranks", "1"]
    assert arguments(given).max_step_tokens == 1 << 27
    assert arguments([*given, "--max-step-tokens", "201326592"]).max_step_tokens == 201_326_592


def test_the_call_that_rank_0_sends_to_every_rank_does_not_contain_the_batch(tmp_path: Path) -> None:
    trainer, calls = Trainer(tiny_model_dir(tmp_path / "model")), []
    trainer.ranks.broadcast_call = calls.append  # type: ignore[method-assign]
    service = TrainerService(lambda: trainer, 0)
    lengths = [90] * 200
    events = list(service.Step(parts(lengths, **asdict(grpo_options())), SimpleNamespace(is_active=lambda: True)))
    assert events[-1].metrics["sequences"] == 200
    ((method, arguments),) = calls
    assert method == "led_step" and len(pickle.dumps(arguments)) < 2000 < 9 * sum(lengths)
