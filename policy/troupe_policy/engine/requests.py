"""Requests to an engine and its answers, as types without gRPC and torch.

These are the types that the engine's files share. Invariant: while the engine runs, each Request gets exactly one
Finished or Refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Request:
    """Request for a continuation of `context` (int32 [n]). The last `resumed_tokens` tokens of `context` were sampled
    by earlier attempts at this turn.

    trajectory: group/member; its kept keys are reused. max_tokens: upper bound on the tokens to sample now, without
    the resumed ones. seed: in [0, 2^32). priority: a smaller number is served first and preempted last. keep: keep
    the keys and values for the next turn. stream: also report tokens as they are sampled.
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
    """Segment [start, end) of an answer's tokens that were sampled under this policy version."""

    version: int
    start: int
    end: int


@dataclass(frozen=True)
class Finished:
    """Answer to a request.

    tokens: int32 [n], sampled for this request (without resumed ones), with the stop token. logprobs: float32 [n],
    natural log, under the distribution sampled from. entropies: float32 [n], nats, of those distributions; [0] if
    they are not reported. cached_tokens: number of context tokens whose keys were kept from an earlier turn or copied
    from the group. started_at: when the request first got a row. first_token_at: when its first token was sampled. Each
    of the two equals ended_at if its event never happened. Times are ms since 1970.
    """

    request: Request
    tokens: np.ndarray
    logprobs: np.ndarray
    entropies: np.ndarray
    finish: str  # one of: stop | length | aborted
    segments: tuple[Segment, ...]
    cached_tokens: int
    preemptions: int
    queued_at: float
    started_at: float
    first_token_at: float
    ended_at: float


@dataclass(frozen=True)
class Refused:
    """Refusal of a request. code: engine.context_exceeded, engine.busy, engine.bad_request or engine.not_finite."""

    request: Request
    code: str
    message: str


@dataclass(frozen=True)
class Partial:
    """Tokens sampled since the previous Partial, int32 [n]; only for requests with `stream`."""

    request: Request
    tokens: np.ndarray


Event = Finished | Refused | Partial


@dataclass(eq=False)
class Sequence:
    """State of a request inside the engine. `row` is None while it waits; `versions` is [(policy version, index of the
    first token that this version sampled)].
    """

    request: Request
    sink: Any
    arrival: int
    queued_at: float
    version: int
    row: int | None = None
    # tokens, logprobs and entropies that were sampled before the last preemption
    tokens: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    logprobs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    entropies: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    versions: list[tuple[int, int]] = field(default_factory=list)
    cached_tokens: int | None = None
    preemptions: int = 0
    started_at: float = 0.0
    first_token_at: float = 0.0
    # True after the group's rows were searched for a common prefix, or if the row held keys of the context already
    shared: bool = False
    # number of iterations by which the prefill was delayed
    waited: int = 0

    def __post_init__(self) -> None:
        self.versions.append((self.version, 0))

    @property
    def order(self) -> tuple[int, int]:
        """Sort key (priority, arrival): the smaller is served first and preempted last."""
        return (self.request.priority, self.arrival)

    @property
    def group(self) -> str | None:
        """Name of the trajectory's group: the trajectory's name (group/member) up to the last slash, None without a
        slash. Members of a group share their prompt.
        """
        group, slash, _ = self.request.trajectory.rpartition("/")
        return group if slash else None

    def mark_version(self, version: int, sampled: int) -> None:
        """Records that policy `version` samples from token number `sampled` on."""
        if self.versions[-1][1] == sampled:
            self.versions.pop()
        self.versions.append((version, sampled))

    def segments(self, sampled: int) -> tuple[Segment, ...]:
        """Segments that state which policy version sampled which of the `sampled` tokens; empty segments are left out.
        """
        ends = [start for _, start in self.versions[1:]] + [sampled]
        return tuple(
            Segment(version, start, end)
            for (version, start), end in zip(self.versions, ends, strict=True)
            if end > start
        )
