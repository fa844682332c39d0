"""Instances and rewards of `verifiers` environments: packages with a `load_environment` (PyPI verifiers, 0.2).

In: an environment's id (the family's name) and load_environment's arguments (its options). Out: rows of its data set,
and the score of its rubric. Troupe itself runs the turns and tools. So an environment whose reward needs state from
the environment's own rollouts cannot be used: its reward raises, and the caller shows the error.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import verifiers
from verifiers.types import State


# Matches special tokens, as kernels/grading/answerExtraction.ts does: a chat server removes them from the text that a
# reward sees.
_special_token = re.compile(r"<\|[^|<>\s]{1,40}\|>")


@functools.lru_cache(maxsize=16)
def _environment(name: str, options: str) -> Any:
    return verifiers.load_environment(name, **json.loads(options))


def _load(name: str, options: dict[str, Any]) -> Any:
    return _environment(name, json.dumps(options, sort_keys=True))


def instances(
    name: str, options: dict[str, Any], split: str, seed: int, count: int
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yields (question, system prompt or None, entry) for at most `count` rows of the environment, shuffled by `seed`.

    The split eval is the environment's evaluation data set, or its training data set if it has no other.
    """
    environment = _load(name, options)
    rows = environment.get_eval_dataset() if split == "eval" else environment.get_dataset()
    rows = rows.shuffle(seed=seed).select(range(min(count, len(rows))))
    for number, row in enumerate(rows):
        messages = _messages(row["prompt"])
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system") or None
        others = [m for m in messages if m["role"] != "system"]
        if len(others) != 1 or others[0]["role"] != "user" or not isinstance(others[0]["content"], str):
            roles = ", ".join(m["role"] for m in messages)
            raise ValueError(f"row {number} of the shuffled {split} data has the messages {roles}: expected one user message as text, with or without a system prompt before it")
        info = row.get("info")
        entry = {
            "answer": "" if row.get("answer") is None else row["answer"],
            "info": json.loads(info) if isinstance(info, str) and info else (info or {}),
            "prompt": messages,
            "task": row.get("task") or "default",
            "options": options,
        }
        yield others[0]["content"], system, entry


def score(name: str, entry: dict[str, Any], answer: str, response: str) -> float:
    """Returns the weighted sum of the rubric's rewards. The completion is the text of all turns without special tokens.

    Raises RuntimeError with the reward functions' errors, which the rubric itself would log and count as 0.
    """
    environment = _load(name, entry["options"])
    row = {key: entry[key] for key in ("prompt", "answer", "info", "task")}
    state = State(input={**row, "example_id": 0})
    state.update(
        completion=[{"role": "assistant", "content": _special_token.sub("", response)}],
        task=entry["task"],
        trajectory=[],
        is_completed=True,
        is_truncated=False,
        reward=None,
        metrics=None,
        error=None,
        timing={},
    )
    with _Errors(environment.rubric) as errors:
        asyncio.run(environment.rubric.score_rollout(state))
    if errors.messages:
        raise RuntimeError("; ".join(errors.messages))
    return float(state["reward"])


class _Errors(logging.Handler):
    """Collects the errors that a rubric, and the rubrics in it, log inside this context."""

    def __init__(self, rubric: Any) -> None:
        super().__init__(logging.ERROR)
        self.loggers = {r.logger for r in (rubric, *getattr(rubric, "rubrics", ()))}
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def __enter__(self) -> "_Errors":
        for logger in self.loggers:
            logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self.loggers:
            logger.removeHandler(self)


def _messages(prompt: Any) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": m["role"], "content": m["content"]} for m in map(dict, prompt)]
