"""The Render service of policy.proto: turns a run's chat messages and texts into token ids, and ids into text.

In: a stream of calls with messages, tool responses, token ids or texts. Out: a stream of answers with text, token ids
and masks.
Invariant: every call that is carried out has one answer, in the order in which the calls came; a call that fails is
refused with the reason, and the process keeps serving. A call that is cancelled before its turn is not carried out.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import lru_cache

import numpy as np

from ..generated import policy_pb2 as pb
from ..generated import policy_pb2_grpc as rpc
from .renderer import Piece, Renderer, RenderError

# Errors that a request causes: the request is refused. So is one that causes another error, which is also logged.
REFUSALS = (RenderError, ValueError, OverflowError, KeyError, TypeError)
# Upper bound on an answer: gRPC's bound on a message (server.py), less 1 MiB.
ANSWER_BYTES = 255 * 1024 * 1024
logger = logging.getLogger("troupe_policy")


class RenderService(rpc.RenderServicer):
    """Has one method per request of `RenderCall`. Its result is the field of that name in `RenderAnswer`."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    async def Calls(self, calls, context):
        waiting: dict[int, pb.RenderCall] = {}
        came = asyncio.Event()
        reader = asyncio.ensure_future(_read(calls, waiting, came))
        try:
            while not reader.done():
                await came.wait()
                came.clear()
                while waiting:
                    yield self._answer(waiting.pop(next(iter(waiting))))
                    # Lets the event loop read the calls and cancellations that came meanwhile.
                    await asyncio.sleep(0)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    def _answer(self, call):
        name = call.WhichOneof("request")
        try:
            answer = pb.RenderAnswer(number=call.number, **{name: getattr(self, name)(getattr(call, name))})
            if answer.ByteSize() > ANSWER_BYTES:  # gRPC would end the stream, with all other calls
                raise ValueError(f"the answer has {answer.ByteSize()} bytes, at most {ANSWER_BYTES} can be sent: ask for fewer items at once")
            return answer
        except REFUSALS as error:
            return pb.RenderAnswer(number=call.number, refused=str(error))
        except Exception as error:
            logger.exception("%s failed", name)
            return pb.RenderAnswer(number=call.number, refused=f"{type(error).__name__}: {error}")

    def describe(self, request):
        renderer = self._renderer
        return pb.TokenizerInfo(
            stop_tokens=renderer.stop_tokens, digest=renderer.digest, vocabulary=renderer.tokens.vocabulary
        )

    def prompt_list(self, request):
        asked = [(_messages(item.messages), _tools(item.tools_json)) for item in request.items]
        return pb.RenderedList(items=[_context(piece) for piece in self._renderer.prompts(asked)])

    def tool_responses_list(self, request):
        items = [self._renderer.tool_responses(list(item.responses)) for item in request.items]
        return pb.RenderedList(items=[_context(item) for item in items])

    def conversations(self, request):
        tools = _tools(request.tools_json)
        items = self._renderer.conversations([_messages(c.messages) for c in request.conversations], tools)
        return pb.RenderedList(items=[_masked(item) for item in items])

    def decode_list(self, request):
        return pb.DecodeListReply(texts=[self._renderer.decode(_ids(item)) for item in request.items])

    def token_bytes(self, request):
        tokens = self._renderer.tokens.token_bytes()
        ends = np.cumsum([len(token) for token in tokens], dtype="<i4")
        return pb.TokenBytesReply(bytes=b"".join(tokens), ends=ends.tobytes())

    def encode_list(self, request):
        return pb.EncodeListReply(items=[_bytes(ids) for ids in self._renderer.encode(request.texts)])


async def _read(calls, waiting: dict[int, pb.RenderCall], came: asyncio.Event) -> None:
    """Puts the stream's calls into `waiting`, and takes out those that are cancelled."""
    try:
        async for call in calls:
            if call.WhichOneof("request") is None:
                waiting.pop(call.number, None)
            else:
                waiting[call.number] = call
                came.set()
    finally:
        came.set()


def _messages(messages) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


@lru_cache(maxsize=64)
def _tools(text: str) -> list | None:
    """Tool schemas in the form that chat templates expect, {"type": "function", "function": …}; None without tools."""
    tools = json.loads(text) if text else []
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools] or None


def _ids(packed: bytes) -> list[int]:
    return np.frombuffer(packed, "<i4").tolist()


def _bytes(ids: list[int]) -> bytes:
    return np.array(ids, "<i4").tobytes()


def _context(piece: Piece) -> pb.Rendered:
    return pb.Rendered(text=piece.text, tokens=_bytes(piece.tokens))


def _masked(piece: Piece) -> pb.Rendered:
    return pb.Rendered(text=piece.text, tokens=_bytes(piece.tokens), mask=np.array(piece.mask, np.uint8).tobytes())
