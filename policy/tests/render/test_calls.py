"""Calls of the Render service: each gets one answer, in order; a call that is cancelled before its turn is not carried
out.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from troupe_policy.generated import policy_pb2 as pb
from troupe_policy.render.service import RenderService


def served(*calls: pb.RenderCall) -> tuple[list[pb.RenderAnswer], list[str]]:
    """The answers to calls that come at once, and the texts that were tokenised."""
    done: list[str] = []

    def encode(texts) -> list[list[int]]:
        done.extend(texts)
        if "refuse" in texts:
            raise ValueError("no such text")
        if "fail" in texts:
            raise RuntimeError("broken")
        return [[len(text)] for text in texts]

    async def stream():
        for call in calls:
            yield call

    async def run() -> list[pb.RenderAnswer]:
        service = RenderService(SimpleNamespace(encode=encode))  # type: ignore[arg-type]
        return [answer async for answer in service.Calls(stream(), None)]

    return asyncio.run(run()), done


def encode(number: int, text: str) -> pb.RenderCall:
    return pb.RenderCall(number=number, encode_list=pb.EncodeListRequest(texts=[text]))


def said(answers: list[pb.RenderAnswer]) -> list[tuple[int, str]]:
    return [(answer.number, answer.refused or answer.WhichOneof("answer")) for answer in answers]


def test_calls_are_answered_in_the_order_in_which_they_came() -> None:
    answers, done = served(encode(7, "a"), encode(3, ""), encode(9, "ccc"))
    assert said(answers) == [(7, "encode_list"), (3, "encode_list"), (9, "encode_list")]
    assert done == ["a", "", "ccc"]
    assert [list(answer.encode_list.items[0]) for answer in answers] == [[1, 0, 0, 0], [0, 0, 0, 0], [3, 0, 0, 0]]


def test_a_call_that_is_cancelled_before_its_turn_is_not_carried_out() -> None:
    answers, done = served(encode(0, "a"), encode(1, "b"), pb.RenderCall(number=1), pb.RenderCall(number=5))
    assert (said(answers), done) == ([(0, "encode_list")], ["a"])


def test_refusals_and_failures_are_answers_and_the_service_goes_on() -> None:
    answers, _ = served(encode(0, "refuse"), encode(1, "fail"), encode(2, "x"))
    assert said(answers) == [(0, "no such text"), (1, "RuntimeError: broken"), (2, "encode_list")]
