"""The reward of a task that an environment package made: what recipe `environment` names as its Python reward."""

from __future__ import annotations

from typing import Any

from troupe_environments.sources import source_of


def reward(answer: str, task: dict[str, Any]) -> float:
    """The package's own score. answer: what the recipe's `reward.place` gives; empty where there is none."""
    of = task["metadata"]
    return source_of(of["package"]).score(of["family"], of["entry"], answer, task["response"])
