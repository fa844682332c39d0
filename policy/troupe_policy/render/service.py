"""The Render service of policy.proto: the only tokeniser of a run.

In: messages, tool responses, token ids. Out: text, token ids, masks.
Invariant: a request that cannot be rendered is answered with INVALID_ARGUMENT and the reason, and the process keeps serving.
"""

from __future__ import annotations

import json

import grpc
import numpy as np

from ..generated import policy_pb2 as pb
from ..generated import policy_pb2_grpc as rpc
from .renderer import Piece, Renderer, RenderError


class RenderService(rpc.RenderServicer):
    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    async def Describe(self, request, context):
        renderer = self._renderer
        return pb.TokenizerInfo(
            stop_tokens=renderer.stop_tokens, digest=renderer.digest, vocabulary=renderer.tokens.vocabulary
        )

    async def Prompt(self, request, context):
        return await self._rendered(
            context, lambda: _rendered(self._renderer.prompt(_messages(request.messages), _tools(request.tools_json)))
        )

    async def ToolResponsesList(self, request, context):
        def render():
            items = [self._renderer.tool_responses(list(item.responses)) for item in request.items]
            return pb.RenderedList(items=[_rendered(item) for item in items])

        return await self._rendered(context, render)

    async def Conversations(self, request, context):
        def render():
            tools = _tools(request.tools_json)
            items = [self._renderer.conversation(_messages(c.messages), tools) for c in request.conversations]
            return pb.RenderedList(items=[_rendered(item) for item in items])

        return await self._rendered(context, render)

    async def Decode(self, request, context):
        return await self._rendered(
            context, lambda: pb.DecodeReply(text=self._renderer.decode(np.frombuffer(request.tokens, "<i4").tolist()))
        )

    async def Encode(self, request, context):
        return await self._rendered(
            context, lambda: pb.EncodeReply(tokens=np.asarray(self._renderer.encode(request.text), "<i4").tobytes())
        )

    async def _rendered(self, context, render):
        try:
            return render()
        except (RenderError, ValueError, OverflowError, KeyError, TypeError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


def _messages(messages) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def _tools(text: str) -> list | None:
    """Tool schemas in the form that chat templates expect, {"type": "function", "function": …}; None without tools."""
    tools = json.loads(text) if text else []
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools] or None


def _rendered(piece: Piece) -> pb.Rendered:
    return pb.Rendered(
        text=piece.text, tokens=np.array(piece.tokens, "<i4").tobytes(), mask=np.array(piece.mask, np.uint8).tobytes()
    )
