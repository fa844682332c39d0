"""Reads the stream of a Step call: its options and its sequences.

In: parts of the stream, as policy.proto has them. Out: the options message, and sequences with arrays.
Invariant: a call holds at most MAX_CALL_TOKENS tokens; a longer one is refused at its first sequence beyond them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..generated import policy_pb2 as pb
from .options import TrainerError, TrainSequence

# Upper bound on the tokens of one call, which are held in memory before it starts: 2^27 take 1.2 GiB with masks and
# logprobs.
MAX_CALL_TOKENS = 1 << 27
NO_OPTIONS = "the call has no options: send them first"


def received(parts: Iterator[Any]) -> tuple[Any, pb.PartialCheckpoints, list[TrainSequence]]:
    """Reads a call's stream to its end: its options message, its checkpoints (none by default), and its sequences.

    Raises TrainerError trainer.batch_too_large at the first sequence beyond MAX_CALL_TOKENS, trainer.bad_option without
    options, trainer.bad_sequence for an array that does not hold whole numbers.
    """
    given, sequences, budget = None, [], MAX_CALL_TOKENS
    checkpoints = pb.PartialCheckpoints()
    for part in parts:
        if part.WhichOneof("part") == "options":
            given = part.options
            continue
        if part.WhichOneof("part") == "checkpoints":
            checkpoints = part.checkpoints
            continue
        budget = _spend(budget, len(part.sequence.mask))
        sequences.append(_sequence(part.sequence))
    if given is None:
        raise TrainerError("trainer.bad_option", NO_OPTIONS)
    return given, checkpoints, sequences


def _spend(budget: int, tokens: int) -> int:
    """Subtracts from the call's token budget and returns the rest. Raises TrainerError trainer.batch_too_large."""
    if tokens > budget:
        raise TrainerError("trainer.batch_too_large", f"the call has more than {MAX_CALL_TOKENS} tokens: send fewer sequences per step")
    return budget - tokens


def _sequence(one: pb.Sequence) -> TrainSequence:
    return TrainSequence(
        trajectory=one.trajectory,
        tokens=_array(one.tokens, "<i4"),
        mask=_array(one.mask, "u1"),
        engine_logp=_array(one.engine_logp, "<f4"),
        advantage=one.advantage,
        group=one.group,
    )


def _array(data: bytes, kind: str) -> np.ndarray:
    """Reads the little-endian numbers in `data`, read-only. Raises TrainerError if bytes are left over."""
    try:
        return np.frombuffer(data, dtype=np.dtype(kind))
    except ValueError as error:
        raise TrainerError("trainer.bad_sequence", f"an array of {len(data)} bytes does not hold whole numbers of type {kind}") from error
