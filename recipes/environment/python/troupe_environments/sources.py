"""Finds the module that wraps an environment package. Imports only that module, since each import takes seconds."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Protocol

MODULES = {"reasoning-gym": "reasoning_gym_source", "verifiers": "verifiers_source"}


class Source(Protocol):
    """Functions that every module that wraps an environment package has."""

    def instances(
        self, name: str, options: dict[str, Any], split: str, seed: int, count: int
    ) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        """Yields (question, system prompt or None, entry) for at most `count` instances of a family."""

    def score(self, name: str, entry: dict[str, Any], answer: str, response: str) -> float | dict[str, Any]:
        """Returns the reward of an answer (empty if the response has none). Raises if the package cannot score it."""


def source_of(package: str) -> Source:
    """Returns the module for `package`, a key of MODULES."""
    # imported only when needed, since each import takes seconds
    return importlib.import_module(f".{MODULES[package]}", __package__)  # type: ignore[return-value]
