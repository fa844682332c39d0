"""Instances and rewards of reasoning-gym's data sets (PyPI reasoning-gym)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import reasoning_gym


def instances(
    name: str, options: dict[str, Any], split: str, seed: int, count: int
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """(question, no system prompt, the entry) of data set `name`. options: of its configuration.

    Instance i is made of the seed `seed + i`: splits are apart by their seeds, which the caller chooses.
    """
    data = reasoning_gym.create_dataset(name, **{**options, "size": count, "seed": seed})
    for entry in data:
        yield entry["question"], None, {**entry, "options": options}


def score(name: str, entry: dict[str, Any], answer: str, response: str) -> float | dict[str, Any]:
    """The data set's own score of an answer, in [0, 1]; no answer is 0, where some data sets give a little.

    Some scores raise on an answer that they cannot read. That answer is wrong, and `why` says so; a score that raises on
    the right answer too is out of order, and raises here.
    """
    if answer == "":
        return 0.0
    # Some data sets score by their configuration, none by its size or seed.
    data = reasoning_gym.create_dataset(name, **{**entry.get("options", {}), "size": 1, "seed": 0})
    try:
        return float(data.score_answer(answer, entry))
    except Exception as error:
        data.score_answer(entry["answer"], entry)
        return {"score": 0.0, "why": f"cannot be read: {type(error).__name__}: {error}"}
