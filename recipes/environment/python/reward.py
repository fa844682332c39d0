"""The reward of tasks that an environment package made; recipe `environment` names this file as its Python reward.

In: the model's answer, the task with the package's entry in its metadata.
Out: the package's own score; with `passAt`, 1 from that score on and 0 below it.
"""

from __future__ import annotations

from typing import Any

from troupe_environments.sources import source_of


def reward(answer: str, task: dict[str, Any]) -> dict[str, Any]:
    """Returns {"score", "why"?}: the package's own score; with `passAt`, 1 if the score reaches it and 0 otherwise.

    answer: the text at the recipe's `reward.place`; empty if the response has none.
    """
    metadata = task["metadata"]
    scored = source_of(metadata["package"], metadata["family"]).score(metadata["family"], metadata["entry"], answer, task["response"])
    result = scored if isinstance(scored, dict) else {"score": scored}
    pass_at = metadata.get("passAt")
    return result if pass_at is None else {**result, "score": float(result["score"] >= pass_at)}
