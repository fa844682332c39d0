"""Frames: each call gets one answer, in order; a cancelled call that has not begun gets none and costs nothing."""

from __future__ import annotations

import asyncio

from troupe_policy.frames import FRAME_BYTES, Frames


class Pipe:
    """Transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True

    def answers(self) -> list[tuple[int, int, bytes]]:
        found, data = [], self.written
        while data:
            end = 4 + int.from_bytes(data[:4], "little")
            found.append((int.from_bytes(data[4:8], "little"), data[8], data[9:end]))
            data = data[end:]
        return found


def frame(call: int, name: str, message: bytes = b"") -> bytes:
    body = call.to_bytes(4, "little") + bytes([len(name)]) + name.encode() + message
    return len(body).to_bytes(4, "little") + body


def served(*pieces: bytes) -> tuple[Pipe, list[bytes]]:
    """What is written, and the messages that a method got, after the pieces came one after the other."""
    done: list[bytes] = []

    def echo(message: bytes) -> bytes:
        done.append(message)
        return message

    def refuse(message: bytes) -> bytes:
        raise ValueError("no such token")

    def fail(message: bytes) -> bytes:
        raise RuntimeError("broken")

    async def run() -> Pipe:
        frames, pipe = Frames({"Echo": echo, "Refuse": refuse, "Fail": fail}, ()), Pipe()
        frames.connection_made(pipe)  # type: ignore[arg-type]
        for piece in pieces:
            frames.data_received(piece)
        for _ in range(20):
            await asyncio.sleep(0)
        return pipe

    return asyncio.run(run()), done


def test_calls_are_answered_in_order_however_their_bytes_come() -> None:
    calls = frame(7, "Echo", b"a") + frame(8, "Echo", b"") + frame(9, "Echo", b"ccc")
    expected = [(7, 0, b"a"), (8, 0, b""), (9, 0, b"ccc")]
    assert served(calls)[0].answers() == expected
    assert served(*[calls[i : i + 1] for i in range(len(calls))])[0].answers() == expected


def test_a_call_that_is_cancelled_before_its_turn_is_not_carried_out() -> None:
    pipe, done = served(frame(0, "Echo", b"a") + frame(1, "Echo", b"b"), frame(1, ""), frame(5, ""))
    assert (pipe.answers(), done) == ([(0, 0, b"a")], [b"a"])


def test_refusals_failures_and_unknown_methods_are_answers_and_the_service_goes_on() -> None:
    calls = frame(0, "Refuse") + frame(1, "Fail") + frame(2, "Nothing") + frame(3, "Echo", b"x")
    assert served(calls)[0].answers() == [
        (0, 1, b"no such token"),
        (1, 1, b"RuntimeError: broken"),
        (2, 1, b"the service has no method Nothing"),
        (3, 0, b"x"),
    ]


def test_a_frame_above_the_bound_ends_the_connection() -> None:
    pipe, _ = served((FRAME_BYTES + 1).to_bytes(4, "little"))
    assert pipe.aborted and pipe.written == b""
