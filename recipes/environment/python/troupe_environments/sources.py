"""Which module speaks to which package. Only the one that is asked for is imported: each takes seconds."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Protocol

MODULES = {"reasoning-gym": "reasoning_gym_source", "verifiers": "verifiers_source"}


class Source(Protocol):
    """What such a module has."""

    def instances(
        self, name: str, options: dict[str, Any], split: str, seed: int, count: int
    ) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        """(question, system prompt, entry) of a family's instances, `count` at most."""

    def score(self, name: str, entry: dict[str, Any], answer: str, response: str) -> float | dict[str, Any]:
        """The reward of an answer (empty where there is none) in a response. Raises where the package cannot tell."""


def source_of(package: str) -> Source:
    return importlib.import_module(f".{MODULES[package]}", __package__)  # type: ignore[return-value]
