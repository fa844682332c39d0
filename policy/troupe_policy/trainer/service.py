"""The Trainer service of policy.proto, around one Trainer.

In: demonstrations in files, streams of sequences; requests to save, to begin a checkpoint, to load, reset, sleep and
wake. Out: progress, metrics, checkpoints, errors with a code.
Invariants: one call at a time works on the model, always in the same thread, so results do not depend on the gRPC
thread that took the call; a checkpoint that was begun is written beside later calls. A second call is refused with
trainer.busy after LAST_CALL_S (0.25 s), never queued. When the caller of Sft or Step disconnects, the call stops before
its next micro-batch (before its next batch, if forks divide batches), and weights and optimizer are as before the call.
A call in its last micro-batch or batch ends normally.
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
from typing import Any, TypeVar

import grpc
import torch
import transformers

from ..child_process import announce, exit_now
from ..generated import policy_pb2 as pb
from ..generated import policy_pb2_grpc as rpc
from ..model.checkpoint import CheckpointError
from ..model.manifest import manifest_digest
from .options import options_of
from .checkpoint_writer import SavedCheckpoint
from .parallel_gradients import ForkLost
from .partial_checkpoints import OnSaved, PartialCheckpoints
from .ranks.ranks import Ranks
from .ranks.torchrun import is_first_of_host
from .received import NO_OPTIONS, received
from .saved_state import ADAPTER_CONFIG, ADAPTER_FILE
from .trainer import (
    GrpoOptions,
    LoraOptions,
    Metrics,
    SftOptions,
    Trainer,
    TrainerError,
)

T = TypeVar("T")
logger = logging.getLogger("troupe_policy")

# Shortest time between two progress events, in seconds.
PROGRESS_EVERY_S = 0.2
# Seconds that a call waits for the previous call before it is refused: a call ends shortly after the caller has read
# its last event.
LAST_CALL_S = 0.25
# Seconds that this process stays alive to report that another of the trainer's processes is lost.
LOST_REPLY_S = 0.3
BUSY = "the trainer works on another call: retry when that call has ended"


class TrainerService(rpc.TrainerServicer):
    """Serves one model. `threads`: CPU threads that torch uses, 0 for torch's own choice; results depend on their
    number. `max_step_tokens`: upper bound on the tokens of one Step call.
    """

    def __init__(self, load: Callable[[], Trainer], threads: int, max_step_tokens: int = 1 << 27) -> None:
        self._max_step_tokens = max_step_tokens
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
            attention=trainer.policy.attention,
            device=str(trainer.device),
            dtype=trainer.dtype,
            versions={"torch": torch.__version__, "transformers": transformers.__version__},
        )

    def Sft(self, requests: Iterator[pb.SftRequest], context: grpc.ServicerContext) -> Iterator[pb.TrainEvent]:
        given = next(requests)
        saved: list[pb.PartialCheckpoint] = []

        def prepare() -> Callable[[Callable[[float, float], None]], Metrics]:
            if not given.HasField("options"):
                raise TrainerError("trainer.bad_option", NO_OPTIONS)
            options = options_of(SftOptions, given.options)
            stop = lambda: not context.is_active()  # noqa: E731
            asked = (given.examples, given.digest, options, _partial(given.checkpoints))
            return lambda report: self._led("sft_files", *asked, on_progress=report, should_stop=stop, on_saved=_into(saved))

        return self._run(prepare, saved)

    def Step(self, parts: Iterator[pb.StepPart], context: grpc.ServicerContext) -> Iterator[pb.TrainEvent]:
        saved: list[pb.PartialCheckpoint] = []

        def prepare() -> Callable[[Callable[[float, float], None]], Metrics]:
            given, asked, sequences = received(parts, self._max_step_tokens)
            options, checkpoints = options_of(GrpoOptions, given), _partial(asked)
            stop = lambda: not context.is_active()  # noqa: E731

            def call(report: Callable[[float, float], None]) -> Metrics:
                say = _into(saved)

                def on_saved(path: str, updates: int, one: SavedCheckpoint) -> None:
                    say(path, updates, one)
                    report(0.0, 0.0)  # wakes the stream: it sends the checkpoint now, not at the step's end

                return self._led("led_step", options, checkpoints, sequences=sequences, should_stop=stop, on_saved=on_saved)

            return call

        return self._run(prepare, saved)

    def Save(self, request: pb.SaveRequest, context: grpc.ServicerContext) -> pb.SaveReply:
        def save() -> pb.SaveReply:
            manifest = self._led("save", request.directory, request.with_optimizer)
            reply = pb.SaveReply(
                digest=manifest["digest"], bytes=manifest["bytes"], dtype=manifest["dtype"], manifest=manifest_digest(manifest)
            )
            adapter = manifest["files"].get(ADAPTER_FILE)
            if adapter is not None:
                reply.adapter_digest, reply.adapter_bytes = adapter["sha256"], adapter["bytes"]
                reply.adapter_config = manifest["files"][ADAPTER_CONFIG]["sha256"]
            return reply

        return self._unary(context, save)

    def Checkpoint(self, requests: Iterator[pb.CheckpointRequest], context: grpc.ServicerContext) -> Iterator[pb.CheckpointEvent]:
        request = next(requests)
        if not self._busy.acquire(timeout=LAST_CALL_S):
            yield pb.CheckpointEvent(error_code="trainer.busy", error_message=BUSY)
            return
        try:
            saving = self._worker.submit(self._led, "checkpoint", request.directory, request.weights).result()
        except (TrainerError, CheckpointError, OSError, RuntimeError) as error:
            yield _unsaved(error)
            return
        finally:
            self._busy.release()
        yield pb.CheckpointEvent()
        try:
            saved = saving.result()
            yield pb.CheckpointEvent(saved=True, manifest=saved.manifest, bytes=saved.size)
        except (CheckpointError, OSError) as error:
            yield _unsaved(error)

    def Load(self, request: pb.LoadRequest, context: grpc.ServicerContext) -> pb.LoadReply:
        started = time.perf_counter()
        self._unary(context, lambda: self._led("load", request.directory, request.manifest))
        return pb.LoadReply(seconds=time.perf_counter() - started)

    def Sleep(self, request: pb.SleepRequest, context: grpc.ServicerContext) -> pb.SleepReply:
        self._unary(context, lambda: self._led("sleep"))
        return pb.SleepReply()

    def Wake(self, request: pb.WakeRequest, context: grpc.ServicerContext) -> pb.WakeReply:
        self._unary(context, lambda: self._led("wake"))
        return pb.WakeReply()

    def Reset(self, request: pb.ResetRequest, context: grpc.ServicerContext) -> pb.ResetReply:
        self._unary(context, lambda: self._led("reset", request.optimizer, request.reference))
        return pb.ResetReply()

    def _led(self, method: str, *given: object, **own: Any) -> Any:
        """Makes a call on every rank. Rank 0 sends the others the method and `given`, not `own`. `own` holds callbacks,
        whose results the method shares with the ranks, and a step's sequences: the method sends each rank its share.
        """
        try:
            self._trainer.ranks.broadcast_call((method, given))
            return getattr(self._trainer, method)(*given, **own)
        except (TrainerError, CheckpointError, OSError):
            raise
        except Exception as error:
            ranks = self._trainer.ranks.size
            if ranks == 1 and not isinstance(error, ForkLost):
                raise
            # The other processes are at another point of the call, or gone: a common state cannot be restored.
            logger.exception("the trainer ends: its processes have no common state any more")
            threading.Timer(LOST_REPLY_S, exit_now, [1]).start()
            what = f"one of the trainer's {ranks} ranks failed, so all of them end" if ranks > 1 else "the trainer ends"
            raise TrainerError("trainer.rank_lost", f"{what}: {error}") from error

    def _run(
        self, prepare: Callable[[], Callable[[Callable[[float, float], None]], Metrics]], saved: list[pb.PartialCheckpoint] | None = None
    ) -> Iterator[pb.TrainEvent]:
        """Yields progress while a call works, then its metrics or its error as the last event. saved: list to
        which the call adds each checkpoint that is complete; it is yielded before the next progress or the last event.
        """
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
                while saved:
                    yield pb.TrainEvent(checkpoint=saved.pop(0))
                if newest:
                    done, loss = newest.pop()
                    yield pb.TrainEvent(done=done, loss=loss)
            metrics = work.result()
            while saved:
                yield pb.TrainEvent(checkpoint=saved.pop(0))
            yield pb.TrainEvent(done=1.0, loss=metrics["loss"], metrics=metrics, last=True)
        except (TrainerError, CheckpointError) as error:
            yield _failed(error.code, str(error))
        except (OSError, RuntimeError, MemoryError) as error:
            # torch raises RuntimeError for errors of the device, most often for lack of memory.
            yield _failed("trainer.failed", str(error) or type(error).__name__)
        finally:
            # A caller that disconnects ends this generator. The call's work stops at the next micro-batch; until then
            # the trainer is busy.
            if work is None or work.done():
                self._busy.release()
            else:
                work.add_done_callback(lambda _: self._busy.release())

    def _unary(self, context: grpc.ServicerContext, call: Callable[[], T]) -> T:
        """Runs `call` in the trainer's thread. Errors end the gRPC call with the details `code: message`: UNAVAILABLE
        if the trainer is busy, FAILED_PRECONDITION for a TrainerError or CheckpointError, INTERNAL for errors of
        torch or the system.
        """
        if not self._busy.acquire(timeout=LAST_CALL_S):
            context.abort(grpc.StatusCode.UNAVAILABLE, f"trainer.busy: {BUSY}")
        try:
            return self._worker.submit(call).result()
        except (TrainerError, CheckpointError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{error.code}: {error}")
        except (OSError, RuntimeError, MemoryError) as error:
            context.abort(grpc.StatusCode.INTERNAL, f"trainer.failed: {str(error) or type(error).__name__}")
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
        given.model, given.device, given.dtype, given.seed, lora=lora, checkpointing=given.checkpointing, ranks=ranks,
        published_dtype=given.published_dtype, gradient_reduction=given.gradient_reduction, attention=given.attention,
        compiled=given.compile,
    )


def follow(given: argparse.Namespace) -> None:
    """Runs a rank other than 0: makes every call that rank 0 makes, until rank 0 is gone. Never returns. On a host
    without rank 0, the first rank announces that the host is ready.
    """
    if given.threads > 0:
        torch.set_num_threads(given.threads)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: exit_now(0))
    try:
        trainer = load_trainer(given)
        if given.node_number > 0 and is_first_of_host():
            announce(pid=os.getpid())
        while True:
            method, arguments = trainer.ranks.broadcast_call()
            try:
                getattr(trainer, method)(*arguments)
            except (TrainerError, CheckpointError) as error:
                logger.info("rank %s: %s refused: %s", trainer.ranks.rank, method, error)
    except Exception:
        logger.exception("rank %s ends", os.environ.get("RANK"))
    exit_now(1)


def _partial(given: pb.PartialCheckpoints) -> PartialCheckpoints:
    return PartialCheckpoints(given.prefix, given.every, given.resume, given.owner, given.resume_manifest)


def _into(saved: list[pb.PartialCheckpoint]) -> OnSaved:
    """Returns a callback that adds each complete checkpoint to the list `saved`."""
    return lambda path, updates, one: saved.append(
        pb.PartialCheckpoint(directory=path, updates=updates, manifest=one.manifest, bytes=one.size)
    )


def _failed(code: str, message: str) -> pb.TrainEvent:
    return pb.TrainEvent(last=True, error_code=code, error_message=message)


def _unsaved(error: Exception) -> pb.CheckpointEvent:
    return pb.CheckpointEvent(error_code=getattr(error, "code", "trainer.failed"), error_message=str(error))
