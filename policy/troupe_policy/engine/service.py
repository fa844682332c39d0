"""The Engine service of policy.proto, around one engine whose loop runs in its own thread.

In: streams of commands; new weights; requests for counts. Out: streams of events; replies. Invariants: a stream's
events answer its own commands; when a stream ends, its open requests are aborted. The events of one iteration cross
from the engine's thread to the event loop in one call.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable

import grpc
import numpy as np

from ..generated import policy_pb2 as pb
from ..generated import policy_pb2_grpc as rpc
from ..model.tokens import Tokens
from .engine import Engine
from .loaded_model import LoadedModel, WeightsError
from .options import EngineOptions
from .requests import Event, Finished, Partial, Refused, Request


class _Stream:
    """Events of one Generate call that wait to be sent: for each of the call's requests one last event, and Partials if
    the request streams.
    """

    def __init__(self) -> None:
        self.queue: asyncio.Queue[list[Event] | None] = asyncio.Queue()
        # By id of a streaming request: the turn's tokens so far, and the number of characters of their text that were
        # sent.
        self.partial: dict[str, tuple[list[int], int]] = {}


class EngineService(rpc.EngineServicer):
    """model: name of the model, shown to people. on_failure: called on the event loop after the engine's thread raised
    an error; the caller must end the process then.
    """

    def __init__(
        self, model: str, loaded: LoadedModel, tokens: Tokens, options: EngineOptions, on_failure: Callable[[], None]
    ) -> None:
        self._model, self._loaded, self._tokens = model, loaded, tokens
        self._loop = asyncio.get_running_loop()
        self.engine = Engine(loaded, options, self._events)
        self._on_failure = on_failure
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def _run(self) -> None:
        try:
            self.engine.run()
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            self._loop.call_soon_threadsafe(self._on_failure)

    def _events(self, events: list[tuple[_Stream, Event]]) -> None:
        """Hands the events of one iteration to their streams. The engine calls it on its own thread."""
        by_stream: dict[_Stream, list[Event]] = {}
        for stream, event in events:
            by_stream.setdefault(stream, []).append(event)
        self._loop.call_soon_threadsafe(_deliver, by_stream)

    async def Describe(self, request, context):
        engine, options = self.engine, self.engine.options
        return pb.EngineInfo(
            model=self._model,
            kv_tokens=engine.ledger.total_blocks * options.block_tokens,
            block_tokens=options.block_tokens,
            max_sequences=options.max_sequences,
            context_tokens=engine.context_tokens,
            vocabulary=self._loaded.vocabulary,
            deterministic=options.deterministic,
            device=str(self._loaded.device),
            dtype=str(self._loaded.dtype).removeprefix("torch."),
        )

    async def Generate(self, commands, context):
        stream = _Stream()
        reader = asyncio.ensure_future(self._read(commands, stream))
        try:
            while True:
                events = await stream.queue.get()
                if events is None:
                    return
                for event in events:
                    yield self._reply(stream, event)
        finally:
            reader.cancel()
            self.engine.abort_all(stream)

    async def _read(self, commands, stream: _Stream) -> None:
        async for command in commands:
            which = command.WhichOneof("command")
            if which == "generate":
                self._generate(command.generate, stream)
            elif which == "abort":
                self.engine.abort(command.abort.request_id, stream)
            elif which == "release":
                self.engine.release(command.release.trajectory)
        stream.queue.put_nowait(None)

    def _generate(self, asked, stream: _Stream) -> None:
        context = asked.context
        request = Request(
            request_id=asked.request_id,
            trajectory=asked.trajectory,
            context=np.frombuffer(context, "<i4", len(context) // 4).astype(np.int32),
            max_tokens=asked.max_tokens,
            resumed_tokens=asked.resumed_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            min_p=asked.min_p,
            stop_tokens=tuple(asked.stop_tokens),
            seed=asked.seed,
            priority=asked.priority,
            keep=asked.keep,
            stream=asked.stream,
        )
        if request.stream:
            resumed = request.context[len(request.context) - request.resumed_tokens :].tolist()
            stream.partial[request.request_id] = (resumed, len(self._tokens.decode(resumed)))
        self.engine.submit(request, stream)

    def _reply(self, stream: _Stream, event: Event):
        request = event.request
        reply = pb.EngineEvent(request_id=request.request_id)
        if isinstance(event, Finished):
            stream.partial.pop(request.request_id, None)
            resumed = request.context[len(request.context) - request.resumed_tokens :]
            reply.finished.CopyFrom(pb.Finished(
                tokens=event.tokens.astype("<i4").tobytes(),
                logprobs=event.logprobs.astype("<f4").tobytes(),
                # Decodes the text of the whole turn, including tokens that earlier attempts sampled.
                text=self._tokens.decode(np.concatenate([resumed, event.tokens]).tolist()),
                finish=event.finish,
                segments=[pb.Segment(policy_version=s.version, start=s.start, end=s.end) for s in event.segments],
                cached_tokens=event.cached_tokens,
                preemptions=event.preemptions,
                queued_at=event.queued_at,
                started_at=event.started_at,
                first_token_at=event.first_token_at,
                ended_at=event.ended_at,
            ))  # fmt: skip
            if len(event.entropies):
                reply.finished.entropies = event.entropies.astype("<f4").tobytes()
        elif isinstance(event, Refused):
            stream.partial.pop(request.request_id, None)
            reply.refused.CopyFrom(pb.Refused(code=event.code, message=event.message))
        elif isinstance(event, Partial):
            reply.partial.CopyFrom(
                pb.Partial(tokens=event.tokens.astype("<i4").tobytes(), text=self._new_text(stream, event))
            )
        return reply

    def _new_text(self, stream: _Stream, event: Partial) -> str:
        """Adds the new tokens and returns the text that was not sent yet. Returns '' if that text ends in an incomplete
        character: all of it waits for a later token.
        """
        tokens, sent = stream.partial.get(event.request.request_id, ([], 0))
        tokens.extend(event.tokens.tolist())
        text = self._tokens.decode(tokens)
        if text.endswith("\ufffd"):
            text = text[:sent]
        stream.partial[event.request.request_id] = (tokens, max(sent, len(text)))
        return text[sent:]

    async def UpdateWeights(self, request, context):
        update = self.engine.update(request.version, request.directory, request.digest, request.keep_kv, request.manifest)
        try:
            return pb.UpdateWeightsReply(seconds=await asyncio.wrap_future(update))
        except (WeightsError, OSError) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    async def Status(self, request, context):
        counts = self.engine.status()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        # ru_maxrss is in kilobytes on Linux and in bytes on macOS.
        unit = 1 if sys.platform == "darwin" else 1024
        return pb.EngineStatus(**counts, cpu_ms=time.process_time() * 1000, max_rss_bytes=usage.ru_maxrss * unit)


def _deliver(by_stream: dict[_Stream, list[Event]]) -> None:
    for stream, events in by_stream.items():
        stream.queue.put_nowait(events)
