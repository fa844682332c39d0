"""Reads the stream of a Step call: its options, its checkpoints, its sequences.

In: parts of the stream, as policy.proto has them. Out: both messages, and sequences with arrays.
Invariant: a call holds at most `max_tokens` tokens; a call with more is refused at the first sequence beyond that
bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..generated import policy_pb2 as pb
from .options import TrainerError, TrainSequence

NO_OPTIONS = "the call has no options: send them first"


def received(parts: Iterator[Any], max_tokens: int) -> tuple[Any, pb.PartialCheckpoints, list[TrainSequence]]:
    """Reads a call's stream to its end: its options message, its checkpoints (none by default), and its sequences.
    `max_tokens`: upper bound on the tokens of all sequences, which are held in memory before the call starts: 9 bytes
    each.

    Raises TrainerError trainer.batch_too_large at the first sequence beyond `max_tokens`, trainer.bad_option without
    options, trainer.bad_sequence for an array whose last number is cut off.
    """
    given, sequences, budget = None, [], max_tokens
    checkpoints = pb.PartialCheckpoints()
    for part in parts:
        if part.WhichOneof("part") == "options":
            given = part.options
            continue
        if part.WhichOneof("part") == "checkpoints":
            checkpoints = part.checkpoints
            continue
        budget -= len(part.sequence.mask)
        if budget < 0:
            raise TrainerError("trainer.batch_too_large", f"the call has more than {max_tokens} tokens, this trainer's --max-step-tokens: send fewer sequences per step")
        sequences.append(_sequence(part.sequence))
    if given is None:
        raise TrainerError("trainer.bad_option", NO_OPTIONS)
    return given, checkpoints, sequences


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
        raise TrainerError("trainer.bad_sequence", f"an array of {len(data)} bytes is not a whole number of values of numpy's type {kind}") from error
