"""The Render service of policy.proto: the only tokeniser of a run.

In: messages, tool responses, token ids, texts. Out: text, token ids, masks.
Invariant: a request that the renderer refuses raises one of `REFUSALS`, with the reason; the service changes nothing.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np

from ..generated import policy_pb2 as pb
from .renderer import Piece, Renderer, RenderError

REFUSALS = (RenderError, ValueError, OverflowError, KeyError, TypeError)


class RenderService:
    """Has a method for each rpc of the service, from its request to its reply."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def Describe(self, request):
        renderer = self._renderer
        return pb.TokenizerInfo(
            stop_tokens=renderer.stop_tokens, digest=renderer.digest, vocabulary=renderer.tokens.vocabulary
        )

    def PromptList(self, request):
        asked = [(_messages(item.messages), _tools(item.tools_json)) for item in request.items]
        return pb.RenderedList(items=[_context(piece) for piece in self._renderer.prompts(asked)])

    def ToolResponsesList(self, request):
        items = [self._renderer.tool_responses(list(item.responses)) for item in request.items]
        return pb.RenderedList(items=[_context(item) for item in items])

    def Conversations(self, request):
        tools = _tools(request.tools_json)
        items = [self._renderer.conversation(_messages(c.messages), tools) for c in request.conversations]
        return pb.RenderedList(items=[_masked(item) for item in items])

    def DecodeList(self, request):
        return pb.DecodeListReply(texts=[self._renderer.decode(_ids(item)) for item in request.items])

    def TokenBytes(self, request):
        tokens = self._renderer.tokens.token_bytes()
        ends = np.cumsum([len(token) for token in tokens], dtype="<i4")
        return pb.TokenBytesReply(bytes=b"".join(tokens), ends=ends.tobytes())

    def EncodeList(self, request):
        return pb.EncodeListReply(items=[_bytes(ids) for ids in self._renderer.encode(request.texts)])


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
