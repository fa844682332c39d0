"""The reward of a task that an environment package made: what recipe `environment` names as its Python reward."""

from __future__ import annotations

from typing import Any

from troupe_environments.sources import source_of


def reward(answer: str, task: dict[str, Any]) -> dict[str, Any]:
    """The package's own score; with `passAt` 1 where it is at least that, else 0.

    answer: what the recipe's `reward.place` gives; empty where there is none.
    """
    of = task["metadata"]
    scored = source_of(of["package"]).score(of["family"], of["entry"], answer, task["response"])
    said = scored if isinstance(scored, dict) else {"score": scored}
    bar = of.get("passAt")
    return said if bar is None else {**said, "score": float(said["score"] >= bar)}
