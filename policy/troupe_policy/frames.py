"""Serves the unary calls of a service of policy.proto over a unix socket, in frames. A short call takes a tenth of the
CPU time of a gRPC call.

In: frames `length u32, call u32, length of the name u8, name of the method, request`; a frame without a name cancels
the call. Out: frames `length u32, call u32, status u8, reply`; status 0: the reply is the method's, 1: it is the text of
an error. A length counts the bytes after it; numbers are little-endian.
Invariant: calls are carried out one at a time, in the order in which they came. A call that is cancelled before its turn
is not carried out. Every other call gets one answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

# Upper bound on the length of one frame.
FRAME_BYTES = 256 * 1024 * 1024
logger = logging.getLogger("troupe_policy")

Method = Callable[[bytes], bytes]


def methods_of(service: object, descriptor: ServiceDescriptor) -> dict[str, Method]:
    """The service's methods by name, from the bytes of a request to those of the reply."""

    def method(name: str, request: type) -> Method:
        handle = getattr(service, name)
        return lambda message: handle(request.FromString(message)).SerializeToString()

    return {one.name: method(one.name, GetMessageClass(one.input_type)) for one in descriptor.methods}


class Frames(asyncio.Protocol):
    """One connection. refusals: errors that a request causes; any other error of a method is logged too."""

    def __init__(self, methods: dict[str, Method], refusals: tuple[type[Exception], ...]) -> None:
        self._methods = methods
        self._refusals = (*refusals, DecodeError)
        self._buffer = bytearray()
        self._waiting: dict[int, tuple[str, bytes]] = {}
        self._is_working = False
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= 4:
            length = int.from_bytes(buffer[at : at + 4], "little")
            if length > FRAME_BYTES:
                logger.error("a frame has %d bytes, at most %d are read: the connection is closed", length, FRAME_BYTES)
                self._transport.abort()
                return
            if len(buffer) - at - 4 < length:
                break
            self._take(bytes(buffer[at + 4 : at + 4 + length]))
            at += 4 + length
        del buffer[:at]

    def _take(self, frame: bytes) -> None:
        call, begin = int.from_bytes(frame[:4], "little"), 5 + frame[4]
        if begin == 5:
            self._waiting.pop(call, None)
            return
        self._waiting[call] = (frame[5:begin].decode(), frame[begin:])
        if not self._is_working:
            self._is_working = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Carries out one call. Between two calls the loop reads what came meanwhile, cancellations included."""
        if self._waiting:
            call = next(iter(self._waiting))
            status, reply = self._answer(*self._waiting.pop(call))
            head = (len(reply) + 5).to_bytes(4, "little") + call.to_bytes(4, "little") + bytes([status])
            self._transport.write(head + reply)
        self._is_working = len(self._waiting) > 0
        if self._is_working:
            self._loop.call_soon(self._work)

    def _answer(self, name: str, message: bytes) -> tuple[int, bytes]:
        try:
            method = self._methods.get(name)
            if method is None:
                raise ValueError(f"the service has no method {name}")
            return 0, method(message)
        except (ValueError, *self._refusals) as error:
            return 1, str(error).encode(errors="replace")
        except Exception as error:
            logger.exception("%s failed", name)
            return 1, f"{type(error).__name__}: {error}".encode(errors="replace")
