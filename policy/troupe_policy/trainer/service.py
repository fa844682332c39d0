"""The Trainer service of policy.proto over trainer.py.

In: streams of examples or sequences, save and load requests. Out: progress, metrics, errors with a code.
Invariants: one call works on the model at a time, in one thread of its own, so that results do not depend on which gRPC
thread took it; a second call is refused with trainer.busy and not queued; a caller that goes away stops its call at
the next micro-batch, with weights and optimizer as they were.
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

from ..model.checkpoint import CheckpointError, weights_digest
from ..generated import policy_pb2 as pb
from ..generated import policy_pb2_grpc as rpc
from ..child_process import end
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

# A call's tokens are held in memory before it starts: 2^27 of them are 1.2 GiB with masks and logprobs.
MAX_CALL_TOKENS = 1 << 27
PROGRESS_EVERY_S = 0.2
# A call is over a moment after its last event was read: the next one waits that long before it is refused.
LAST_CALL_S = 0.25
# So long rank 0 lives on to say that another one is lost.
LOST_REPLY_S = 0.3


class TrainerService(rpc.TrainerServicer):
    """Serves one model. `threads`: CPU threads of torch, 0 leaves torch's choice; results depend on their number."""

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
            given, received = None, []
            budget = MAX_CALL_TOKENS
            for part in parts:
                if part.WhichOneof("part") == "options":
                    given = part.options
                    continue
                example = part.example
                budget = _spend(budget, len(example.mask))
                received.append(SftExample(_array(example.tokens, "<i4"), _array(example.mask, "u1")))
            if given is None:
                raise TrainerError("trainer.bad_option", "the stream has no options")
            options = options_of(SftOptions, given)
            stop = lambda: not context.is_active()  # noqa: E731
            return lambda report: self._led("sft", received, options, on_progress=report, should_stop=stop)

        return self._run(prepare)

    def Step(self, parts: Iterator[pb.StepPart], context: grpc.ServicerContext) -> Iterator[pb.TrainEvent]:
        def prepare() -> Callable[[Callable[[float, float], None]], Metrics]:
            given, received = None, []
            budget = MAX_CALL_TOKENS
            for part in parts:
                if part.WhichOneof("part") == "options":
                    given = part.options
                    continue
                one = part.sequence
                budget = _spend(budget, len(one.mask))
                received.append(
                    TrainSequence(
                        trajectory=one.trajectory,
                        tokens=_array(one.tokens, "<i4"),
                        mask=_array(one.mask, "u1"),
                        engine_logprobs=_array(one.engine_logprobs, "<f4"),
                        advantage=one.advantage,
                        group=one.group,
                    )
                )
            if given is None:
                raise TrainerError("trainer.bad_option", "the stream has no options")
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
        """A call on every rank: the others hear of it here. What only rank 0 can know (a caller who left) it tells them."""
        try:
            self._trainer.ranks.order((method, given))
            return getattr(self._trainer, method)(*given, **callbacks)
        except (TrainerError, CheckpointError, OSError):
            raise
        except Exception as error:
            if self._trainer.ranks.size == 1:
                raise
            # The others are somewhere else in the call, or gone: there is no way back to a common state.
            logger.exception("rank 0 gives up")
            threading.Timer(LOST_REPLY_S, end, [1]).start()
            raise TrainerError("trainer.rank_lost", f"a rank of {self._trainer.ranks.size} failed: {error}") from error

    def _run(self, prepare: Callable[[], Callable[[Callable[[float, float], None]], Metrics]]) -> Iterator[pb.TrainEvent]:
        """Progress while a call works, then its metrics or its error, as the last event."""
        if not self._busy.acquire(timeout=LAST_CALL_S):
            yield _failed("trainer.busy", "the trainer works on another call")
            return
        work: Future[Metrics] | None = None
        try:
            call = prepare()
            # One place for progress: whoever reads slowly gets the newest, not all of it.
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
            # torch raises RuntimeError for what the device could not do, out of memory first of all
            yield _failed("trainer.failed", str(error))
        finally:
            # A caller that left ends this generator; its work stops at the next micro-batch, and only then is it free.
            if work is None or work.done():
                self._busy.release()
            else:
                work.add_done_callback(lambda _: self._busy.release())

    def _unary(self, context: grpc.ServicerContext, call: Callable[[], T]) -> T:
        """Runs `call` in the trainer's thread. An error's code stands before its message in the status' details."""
        if not self._busy.acquire(timeout=LAST_CALL_S):
            context.abort(grpc.StatusCode.UNAVAILABLE, "trainer.busy: the trainer works on another call")
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
    """The trainer of a command line, on this rank."""
    lora = None
    if given.lora_rank is not None:
        lora = LoraOptions(given.lora_rank, given.lora_alpha, tuple(given.lora_targets.split(",")))
    ranks = Ranks.from_environment(given.rank_timeout)
    return Trainer(
        given.model, given.device, given.dtype, given.seed, lora=lora, checkpointing=given.checkpointing, ranks=ranks
    )


def follow(given: argparse.Namespace) -> None:
    """A rank that is not the first: makes every call that rank 0 makes, until rank 0 is gone. Never returns."""
    if given.threads > 0:
        torch.set_num_threads(given.threads)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end(0))
    try:
        trainer = load_trainer(given)
        while True:
            method, arguments = trainer.ranks.order()
            try:
                getattr(trainer, method)(*arguments)
            except (TrainerError, CheckpointError) as error:
                logger.info("rank %s: %s refused: %s", trainer.ranks.rank, method, error)
    except Exception:
        logger.exception("rank %s ends", os.environ.get("RANK"))
    end(1)


def _array(data: bytes, kind: str) -> np.ndarray:
    """The little-endian numbers in `data`; read-only. Raises TrainerError when bytes are left over."""
    try:
        return np.frombuffer(data, dtype=np.dtype(kind))
    except ValueError as error:
        raise TrainerError("trainer.bad_sequence", f"{len(data)} bytes are no whole number of {kind}") from error


def _spend(budget: int, tokens: int) -> int:
    if tokens > budget:
        raise TrainerError("trainer.batch_too_large", f"a call takes at most {MAX_CALL_TOKENS} tokens")
    return budget - tokens


def _failed(code: str, message: str) -> pb.TrainEvent:
    return pb.TrainEvent(last=True, error_code=code, error_message=message)
