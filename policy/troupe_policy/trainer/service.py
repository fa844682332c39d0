"""The Trainer service of policy.proto, around one Trainer.

In: streams of examples or sequences, save and load requests. Out: progress, metrics, errors with a code.
Invariants: one call at a time works on the model, always in the same thread, so results do not depend on the gRPC
thread that took the call. A second call is refused with trainer.busy after LAST_CALL_S, never queued. When the caller
of Sft or Step disconnects, its call stops at the next micro-batch, with weights and optimizer unchanged.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import torch
import transformers

from ..child_process import exit_now
from ..generated import policy_pb2 as pb
from ..generated import policy_pb2_grpc as rpc
from ..model.checkpoint import CheckpointError, weights_digest
from .options import options_of
from .ranks.ranks import Ranks
from .saved_state import ADAPTER
from .trainer import (
    GrpoOptions,
    LoraOptions,
    Metrics,
    SftExample,
    SftOptions,
    Trainer,
    TrainerError,
    TrainSequence,
)

T = TypeVar("T")
logger = logging.getLogger("troupe_policy")

# Upper bound on the tokens of one call, which are held in memory before it starts: 2^27 take 1.2 GiB with masks and
# logprobs.
MAX_CALL_TOKENS = 1 << 27
# Shortest time between two progress events, in seconds.
PROGRESS_EVERY_S = 0.2
# Seconds that a call waits for the previous one before it is refused: a call ends shortly after its last event was
# read.
LAST_CALL_S = 0.25
# Seconds that rank 0 stays alive to report that another rank is lost.
LOST_REPLY_S = 0.3
NO_OPTIONS = "the stream ended without options: send them as its first part"
BUSY = "the trainer works on another call: retry when that call has ended"


class TrainerService(rpc.TrainerServicer):
    """Serves one model. `threads`: CPU threads that torch uses, 0 for torch's own choice; results depend on their number."""

    def __init__(self, load: Callable[[], Trainer], threads: int) -> None:
        if threads > 0:
            torch.set_num_threads(threads)
        self._busy = threading.Lock()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")
        self._trainer = self._worker.submit(load).result()

    def Describe(self, request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.TrainerInfo:
        trainer = self._trainer
        return pb.TrainerInfo(
            model=trainer.model_dir,
            parameters=sum(p.numel() for p in trainer.model.parameters()),
            trained_parameters=sum(p.numel() for p in trainer.parameters.values()),
            ranks=trainer.ranks.size,
            packed=trainer.policy.packed,
            device=str(trainer.device),
            dtype=trainer.dtype,
            versions={"torch": torch.__version__, "transformers": transformers.__version__},
        )

    def Sft(self, parts: Iterator[pb.SftPart], context: grpc.ServicerContext) -> Iterator[pb.TrainEvent]:
        def prepare() -> Callable[[Callable[[float, float], None]], Metrics]:
            given, received = _received(
                parts, "example", lambda one: SftExample(_array(one.tokens, "<i4"), _array(one.mask, "u1"))
            )
            options = options_of(SftOptions, given)
            stop = lambda: not context.is_active()  # noqa: E731
            return lambda report: self._led("sft", received, options, on_progress=report, should_stop=stop)

        return self._run(prepare)

    def Step(self, parts: Iterator[pb.StepPart], context: grpc.ServicerContext) -> Iterator[pb.TrainEvent]:
        def prepare() -> Callable[[Callable[[float, float], None]], Metrics]:
            given, received = _received(parts, "sequence", _sequence)
            options = options_of(GrpoOptions, given)
            stop = lambda: not context.is_active()  # noqa: E731
            return lambda _report: self._led("step", received, options, should_stop=stop)

        return self._run(prepare)

    def Save(self, request: pb.SaveRequest, context: grpc.ServicerContext) -> pb.SaveReply:
        def save() -> pb.SaveReply:
            digest, size = self._led("save", request.directory, request.with_optimizer)
            if self._trainer.lora is None:
                return pb.SaveReply(digest=digest, bytes=size)
            adapter_digest, adapter_bytes = weights_digest(Path(request.directory) / ADAPTER)
            return pb.SaveReply(digest=digest, bytes=size, adapter_digest=adapter_digest, adapter_bytes=adapter_bytes)

        return self._unary(context, save)

    def Load(self, request: pb.LoadRequest, context: grpc.ServicerContext) -> pb.LoadReply:
        started = time.perf_counter()
        self._unary(context, lambda: self._led("load", request.directory))
        return pb.LoadReply(seconds=time.perf_counter() - started)

    def Reset(self, request: pb.ResetRequest, context: grpc.ServicerContext) -> pb.ResetReply:
        self._unary(context, lambda: self._led("reset", request.optimizer, request.reference))
        return pb.ResetReply()

    def _led(self, method: str, *given: object, **callbacks: Callable) -> Any:
        """Makes a call on every rank. Rank 0 sends it to the others; `callbacks` exist only on rank 0, which shares
        their results.
        """
        try:
            self._trainer.ranks.broadcast_call((method, given))
            return getattr(self._trainer, method)(*given, **callbacks)
        except (TrainerError, CheckpointError, OSError):
            raise
        except Exception as error:
            if self._trainer.ranks.size == 1:
                raise
            # The other ranks are at another point of the call, or gone: a common state cannot be restored.
            logger.exception("rank 0 ends: the ranks have no common state any more")
            threading.Timer(LOST_REPLY_S, exit_now, [1]).start()
            raise TrainerError("trainer.rank_lost", f"a rank of {self._trainer.ranks.size} failed: {error}") from error

    def _run(self, prepare: Callable[[], Callable[[Callable[[float, float], None]], Metrics]]) -> Iterator[pb.TrainEvent]:
        """Yields progress while a call works, then its metrics or its error as the last event."""
        if not self._busy.acquire(timeout=LAST_CALL_S):
            yield _failed("trainer.busy", BUSY)
            return
        work: Future[Metrics] | None = None
        try:
            call = prepare()
            # Queue of one: it holds the newest progress only, and a slow reader skips the events in between.
            newest: list[tuple[float, float]] = []
            wake = threading.Event()
            sent = 0.0

            def report(done: float, loss: float) -> None:
                nonlocal sent
                if time.monotonic() - sent >= PROGRESS_EVERY_S:
                    sent = time.monotonic()
                    newest[:] = [(done, loss)]
                    wake.set()

            work = self._worker.submit(call, report)
            work.add_done_callback(lambda _: wake.set())
            while not work.done():
                wake.wait()
                wake.clear()
                if newest:
                    done, loss = newest.pop()
                    yield pb.TrainEvent(done=done, loss=loss)
            metrics = work.result()
            yield pb.TrainEvent(done=1.0, loss=metrics["loss"], metrics=metrics, last=True)
        except (TrainerError, CheckpointError) as error:
            yield _failed(error.code, str(error))
        except (RuntimeError, MemoryError) as error:
            # torch raises RuntimeError for errors of the device, most often for lack of memory.
            yield _failed("trainer.failed", str(error))
        finally:
            # A caller that disconnects ends this generator. The call's work stops at the next micro-batch; until then
            # the trainer is busy.
            if work is None or work.done():
                self._busy.release()
            else:
                work.add_done_callback(lambda _: self._busy.release())

    def _unary(self, context: grpc.ServicerContext, call: Callable[[], T]) -> T:
        """Runs `call` in the trainer's thread. The details of an error status are `code: message`."""
        if not self._busy.acquire(timeout=LAST_CALL_S):
            context.abort(grpc.StatusCode.UNAVAILABLE, f"trainer.busy: {BUSY}")
        try:
            return self._worker.submit(call).result()
        except (TrainerError, CheckpointError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{error.code}: {error}")
        except (OSError, RuntimeError, MemoryError) as error:
            context.abort(grpc.StatusCode.INTERNAL, f"trainer.failed: {error}")
        finally:
            self._busy.release()
        raise AssertionError("abort raises")


def load_trainer(given: argparse.Namespace) -> Trainer:
    """Makes this rank's trainer from the command line of troupe_policy.server."""
    lora = None
    if given.lora_rank is not None:
        lora = LoraOptions(given.lora_rank, given.lora_alpha, tuple(given.lora_targets.split(",")))
    ranks = Ranks.from_environment(given.rank_timeout)
    return Trainer(
        given.model, given.device, given.dtype, given.seed, lora=lora, checkpointing=given.checkpointing, ranks=ranks
    )


def follow(given: argparse.Namespace) -> None:
    """Runs a rank other than 0: makes every call that rank 0 makes, until rank 0 is gone. Never returns."""
    if given.threads > 0:
        torch.set_num_threads(given.threads)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: exit_now(0))
    try:
        trainer = load_trainer(given)
        while True:
            method, arguments = trainer.ranks.broadcast_call()
            try:
                getattr(trainer, method)(*arguments)
            except (TrainerError, CheckpointError) as error:
                logger.info("rank %s: %s refused: %s", trainer.ranks.rank, method, error)
    except Exception:
        logger.exception("rank %s ends", os.environ.get("RANK"))
    exit_now(1)


def _array(data: bytes, kind: str) -> np.ndarray:
    """Reads the little-endian numbers in `data`, read-only. Raises TrainerError if bytes are left over."""
    try:
        return np.frombuffer(data, dtype=np.dtype(kind))
    except ValueError as error:
        raise TrainerError("trainer.bad_sequence", f"an array of {len(data)} bytes does not hold whole numbers of type {kind}") from error


def _received(parts: Iterator[Any], field: str, convert: Callable[[Any], T]) -> tuple[Any, list[T]]:
    """Reads a call's stream to its end: its options message, and its items from `field`, converted.

    Raises TrainerError trainer.batch_too_large at the first item beyond MAX_CALL_TOKENS, trainer.bad_option without
    options.
    """
    given, items, budget = None, [], MAX_CALL_TOKENS
    for part in parts:
        if part.WhichOneof("part") == "options":
            given = part.options
            continue
        one = getattr(part, field)
        budget = _spend(budget, len(one.mask))
        items.append(convert(one))
    if given is None:
        raise TrainerError("trainer.bad_option", NO_OPTIONS)
    return given, items


def _sequence(one: pb.Sequence) -> TrainSequence:
    return TrainSequence(
        trajectory=one.trajectory,
        tokens=_array(one.tokens, "<i4"),
        mask=_array(one.mask, "u1"),
        engine_logp=_array(one.engine_logp, "<f4"),
        advantage=one.advantage,
        group=one.group,
    )


def _spend(budget: int, tokens: int) -> int:
    """Subtracts from the call's token budget and returns the rest. Raises TrainerError trainer.batch_too_large."""
    if tokens > budget:
        raise TrainerError("trainer.batch_too_large", f"the call has more than {MAX_CALL_TOKENS} tokens: send fewer sequences per step")
    return budget - tokens


def _failed(code: str, message: str) -> pb.TrainEvent:
    return pb.TrainEvent(last=True, error_code=code, error_message=message)
