"""Finds and imports the module of this directory that wraps a family of an environment package. Other modules of the
directory are not imported, since each import takes seconds. A family of verifiers that is an installed Python package
is imported too, to see whether it is a taskset or an older environment.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any, Protocol

PACKAGES = ("reasoning-gym", "verifiers")


class Source(Protocol):
    """Functions that every module that wraps an environment package has."""

    def instances(
        self, name: str, options: dict[str, Any], split: str, seed: int, count: int
    ) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        """Yields (question, system prompt or None, entry) for at most `count` instances of a family."""

    def score(self, name: str, entry: dict[str, Any], answer: str, response: str) -> float | dict[str, Any]:
        """Returns the reward of an answer (empty if the response has none). Raises if the package cannot score it."""


def source_of(package: str, family: str) -> Source:
    """Returns the module for a family of `package`, one of PACKAGES."""
    # imported only when needed, since each import takes seconds
    return importlib.import_module(f".{_module(package, family)}", __package__)  # type: ignore[return-value]


def _module(package: str, family: str) -> str:
    if package == "reasoning-gym":
        return "reasoning_gym_source"
    if package != "verifiers":
        raise ValueError(f"unknown package {package!r}; packages: {', '.join(PACKAGES)}")
    # A family is a Python package, whose name has underscores for the hyphens of its id; verifiers brings some itself.
    name = family.split("/")[-1].split("@")[0].replace("-", "_")
    found = [place for place in (name, f"verifiers.v1.tasksets.{name}") if importlib.util.find_spec(place)]
    is_older = found[:1] == [name] and hasattr(importlib.import_module(name), "load_environment")
    return "taskset_source" if found and not is_older else "verifiers_source"
