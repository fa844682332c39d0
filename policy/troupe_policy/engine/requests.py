"""What an engine is asked and what it answers, free of gRPC and torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Request:
    """Continue `context` (int32 [n]). The last `resumed_tokens` of it were sampled for this turn before.

    seed: in [0, 2^32). priority: smaller goes first and is preempted last. keep: leave the keys and values in place
    afterwards. stream: also report tokens as they come.
    """

    request_id: str
    trajectory: str
    context: np.ndarray
    max_tokens: int
    resumed_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_tokens: tuple[int, ...] = ()
    seed: int = 0
    priority: int = 0
    keep: bool = False
    stream: bool = False


@dataclass(frozen=True)
class Segment:
    """Tokens [start, end) were sampled under this policy version."""

    version: int
    start: int
    end: int


@dataclass(frozen=True)
class Finished:
    """tokens int32 [n], the stop token among them; logprobs, entropies float32 [n] (the latter [0] where nobody wants
    them); times in ms since 1970.
    """

    request: Request
    tokens: np.ndarray
    logprobs: np.ndarray
    entropies: np.ndarray
    finish: str  # stop | length | aborted
    segments: tuple[Segment, ...]
    cached_tokens: int
    preemptions: int
    queued_at: float
    started_at: float
    first_token_at: float
    ended_at: float


@dataclass(frozen=True)
class Refused:
    """Codes: engine.context_exceeded, engine.busy, engine.bad_request, engine.not_finite."""

    request: Request
    code: str
    message: str


@dataclass(frozen=True)
class Partial:
    """Tokens that were sampled since the last one, int32 [n]; only for requests with `stream`."""

    request: Request
    tokens: np.ndarray


Event = Finished | Refused | Partial


@dataclass(eq=False)
class Sequence:
    """A request on its way through the engine. `row` is None while it waits."""

    request: Request
    sink: Any
    arrival: int
    queued_at: float
    version: int
    row: int | None = None
    # What it had sampled when it was preempted.
    tokens: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    logprobs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    entropies: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    versions: list[tuple[int, int]] = field(default_factory=list)
    cached_tokens: int | None = None
    preemptions: int = 0
    started_at: float = 0.0
    first_token_at: float = 0.0
    # Whether it was looked up if another row already holds its prefix.
    shared: bool = False
    # Iterations it has waited for its prefill.
    waited: int = 0

    def __post_init__(self) -> None:
        self.versions.append((self.version, 0))

    @property
    def order(self) -> tuple[int, int]:
        """Smaller is served first and preempted last."""
        return (self.request.priority, self.arrival)

    @property
    def group(self) -> str | None:
        """Members of a group have their prompt in common: the trajectory is called group/member."""
        group, slash, _ = self.request.trajectory.rpartition("/")
        return group if slash else None

    def mark_version(self, version: int, sampled: int) -> None:
        """From the token number `sampled` on, another policy samples."""
        if self.versions[-1][1] == sampled:
            self.versions.pop()
        self.versions.append((version, sampled))

    def segments(self, sampled: int) -> tuple[Segment, ...]:
        ends = [start for _, start in self.versions[1:]] + [sampled]
        return tuple(
            Segment(version, start, end)
            for (version, start), end in zip(self.versions, ends, strict=True)
            if end > start
        )
