"""Measures the processor time of training steps and of their micro-batches, for several batches in one process.

In: a trainer, batches of sequences with their step options, the number of rounds. Out: for each batch the seconds of
each micro-batch in order, of the updates and of the whole step; each number is the least of all rounds. Invariants:
every round steps once on each batch, so that other work on the machine slows all batches alike. Processor time counts
all threads of this process, and leaves out waiting for a processor and for other ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from troupe_policy.trainer import grpo_step
from troupe_policy.trainer.trainer import GrpoOptions, Trainer, TrainSequence


def step_seconds(
    trainer: Trainer, batches: list[tuple[list[TrainSequence], GrpoOptions]], rounds: int
) -> list[dict[str, Any]]:
    least: list[dict[str, Any]] = [{} for _ in batches]
    # One more round comes first and does not count: in it, memory of this size is allocated for the first time.
    for turn in range(rounds + 1):
        for at, (sequences, options) in enumerate(batches):
            found = _timed(trainer, sequences, options)
            if turn > 0:
                least[at] = _least(least[at], found)
    return least


def _timed(trainer: Trainer, sequences: list[TrainSequence], options: GrpoOptions) -> dict[str, Any]:
    micros: list[float] = []
    updates: list[float] = []
    micro, update = grpo_step.grpo_micro, trainer.update
    grpo_step.grpo_micro = _clocked(micro, micros)  # type: ignore[assignment]
    trainer.update = _clocked(update, updates)  # type: ignore[method-assign]
    started = time.process_time()
    try:
        trainer.step(sequences, options)
    finally:
        grpo_step.grpo_micro, trainer.update = micro, update  # type: ignore[method-assign]
    return {"micros": micros, "update": sum(updates), "step": time.process_time() - started}


def _clocked(act: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def clocked(*given: Any, **named: Any) -> Any:
        started = time.process_time()
        try:
            return act(*given, **named)
        finally:
            seconds.append(time.process_time() - started)

    return clocked


def _least(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    if not one:
        return other
    pairs = zip(one["micros"], other["micros"], strict=True)
    return {"micros": [min(pair) for pair in pairs], **{key: min(one[key], other[key]) for key in ("update", "step")}}
