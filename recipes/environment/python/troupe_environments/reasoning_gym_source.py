"""Instances and rewards of reasoning-gym's data sets (PyPI reasoning-gym).

In: a data set's name and configuration. Out: questions with the entries that score their answers. See sources.Source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import reasoning_gym


def instances(
    name: str, options: dict[str, Any], split: str, seed: int, count: int
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yields (question, None for no system prompt, entry) from data set `name`. options: fields of its configuration.

    Instance i is made from the seed `seed + i`: the caller keeps splits apart by choosing distant seeds.
    """
    data = reasoning_gym.create_dataset(name, **{**options, "size": count, "seed": seed})
    for entry in data:
        yield entry["question"], None, {**entry, "options": options}


def score(name: str, entry: dict[str, Any], answer: str, response: str) -> float | dict[str, Any]:
    """Returns the data set's own score of an answer, in [0, 1]. An empty answer scores 0, though some data sets give it
    a little.

    Some scoring functions raise on an answer that they cannot read. That answer is wrong, and `why` says so. A
    function that also raises on the right answer is broken, and its error is raised here.
    """
    if answer == "":
        return 0.0
    # Size and seed are arbitrary: some data sets score by their configuration, but none by these two fields.
    data = reasoning_gym.create_dataset(name, **{**entry.get("options", {}), "size": 1, "seed": 0})
    try:
        return float(data.score_answer(answer, entry))
    except Exception as error:
        data.score_answer(entry["answer"], entry)
        return {"score": 0.0, "why": f"cannot be read: {type(error).__name__}: {error}"}
