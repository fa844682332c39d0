"""Computes gradients of several parts of a batch at once on a CPU: this process computes one, each fork another.

A small model's operations are too short to be spread over cores, and threads of one interpreter wait for each other
between them: with the quickstart's model two threads need 0.95 of one thread's time for a batch, two processes 0.76.

In: parts of a batch, in one list for each process; the function from a part to its loss, which the forks inherit.
Out: the sum of the losses, and gradients in `.grad`.
Invariants: the model's parameters and buffers lie in memory that all processes share, so an update is seen by all.
Gradients are summed in the order of the lists, so the same lists give the same bits. A fork ends with this process,
kill -9 included. If a fork is lost, or keeps this process waiting for ANSWER_S (600 s), ForkLost is raised, and the
trainer cannot be used any more.
"""

from __future__ import annotations

import logging
import mmap
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from ..child_process import end_with_parent, show_command_line
from .options import TrainerError

T = TypeVar("T")
Gradients = list[Tensor | None]

# Upper bound on a model's parameters. For larger models torch's own threads are as fast, and need one gradient instead
# of one for each process.
MOST_PARAMETERS = 4_000_000
# Upper bound on the processes, because each has a gradient and activations of its own.
MOST_PROCESSES = 8
# Seconds that this process waits for a fork to read its share, and again for the answer.
ANSWER_S = 600.0
# Seconds that this process waits for a new fork to compute a first gradient.
START_S = 30.0
logger = logging.getLogger("troupe_policy")


class ForkLost(RuntimeError):
    """A fork has ended or does not answer."""


class ForkRefused(RuntimeError):
    """torch computes no gradients in a fork of this process."""


class ParallelGradients(Generic[T]):
    """Computes gradients in this process and in forks of it. `processes`: their number, this process included."""

    def __init__(self, model: nn.Module, processes: int, loss_of: Callable[[T], Tensor]) -> None:
        """Moves the model to shared memory and forks. A part has to be picklable. The forks also end when the thread
        that makes them ends. Raises ForkRefused, ForkLost or OSError, after which no fork is left.
        """
        self.processes = processes
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._loss_of = loss_of
        held = [*model.parameters(), *model.buffers()]
        for tensor, shared in zip(held, _shared_like(held), strict=True):
            tensor.data = shared.copy_(tensor.data)
        self._forks: list[_Fork[T]] = []
        try:
            for _ in range(processes - 1):
                self._forks.append(_Fork(self._parameters, loss_of, [fork.connection for fork in self._forks]))
        except BaseException:
            for fork in self._forks:
                fork.end()
            raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block torch uses no threads but the caller's: its other threads would wait for the next operation
        on the cores that `backward` needs.
        """
        own = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(own)

    def backward(self, shares: Iterable[Sequence[T]]) -> float:
        """Adds the gradients of all losses to `.grad`; returns the sum of the losses. shares: one for each process.
        Each is sent to its fork as soon as it is read; this process computes the last one.

        If a share fails, raises the first such error after every process has ended its share. Raises ForkLost if a fork
        is lost.
        """
        remaining = iter(shares)
        asked: list[_Fork[T]] = []
        try:
            for fork, share in zip(self._forks, remaining):
                fork.ask(share)
                asked.append(fork)
            own = _gradients(self._parameters, next(remaining), self._loss_of)
        finally:
            # Read after an error, too: an answer left in its pipe would be taken for the answer to the next batch.
            answers = [fork.answer() for fork in asked]
        total = 0.0
        for loss, gradients in (*(fork.result(answer) for fork, answer in zip(asked, answers, strict=True)), own):
            total += loss
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        return total


@dataclass(frozen=True)
class _Answer:
    """Answer of a fork: the loss of its share, and which parameters have a gradient (it is in shared memory); or the
    code and the text of an error.
    """

    loss: float = 0.0
    present: tuple[bool, ...] = ()
    error: tuple[str, str] | None = None


class _Fork(Generic[T]):
    """A forked process. `connection`: the parent's end of the pipe to it."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], loss_of: Callable[[T], Tensor], others: Sequence[Connection]
    ) -> None:
        """others: the parent's ends of the earlier forks' pipes. The new fork inherits them and closes its copies."""
        self.connection, theirs = Pipe()
        self._gradients = _shared_like(parameters)
        given = (theirs, [*others, self.connection], parameters, self._gradients, loss_of, os.getpid())
        self._process = get_context("fork").Process(target=_serve, args=given, daemon=True)
        self._process.start()
        theirs.close()
        try:
            _limit_sends(self.connection)
            tried = self.answer(START_S)
            if tried.error is not None:
                raise ForkRefused(tried.error[1])
        except BaseException:
            self.end()
            raise

    def ask(self, share: Sequence[T]) -> None:
        try:
            self.connection.send(share)
        except BlockingIOError as error:
            raise ForkLost(f"a process that computes gradients has not read its share for {ANSWER_S:.0f} s") from error
        except OSError as error:
            raise self._lost() from error

    def answer(self, within_s: float | None = None) -> _Answer:
        deadline_s = ANSWER_S if within_s is None else within_s
        try:
            if not self.connection.poll(deadline_s):
                raise ForkLost(f"a process that computes gradients has not answered for {deadline_s:.0f} s")
            answer: _Answer = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        return answer

    def result(self, answer: _Answer) -> tuple[float, Gradients]:
        if answer.error is not None:
            code, text = answer.error
            raise TrainerError(code, text) if code else RuntimeError(text)
        # Copies: the fork writes its next gradients to the same memory.
        pairs = zip(self._gradients, answer.present, strict=True)
        return answer.loss, [gradient.clone() if present else None for gradient, present in pairs]

    def end(self) -> None:
        """Kills the forked process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()

    def _lost(self) -> ForkLost:
        self._process.join(1.0)
        return ForkLost(f"a process that computes gradients has ended with the code {self._process.exitcode}")


def _serve(  # noqa: PLR0913
    connection: Connection,
    unused: Sequence[Connection],
    parameters: Sequence[nn.Parameter],
    shared: Sequence[Tensor],
    loss_of: Callable[[T], Tensor],
    parent: int,
) -> None:
    """Runs in a fork: computes the shares that come through the pipe and answers each, until the pipe ends. shared:
    tensors in shared memory that get the gradients.
    """
    end_with_parent(parent)
    show_command_line([sys.executable, "-m", __name__, "--parent", str(parent)])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in unused:
        other.close()
    torch.set_num_threads(1)

    def first() -> _Answer:
        # torch refuses gradients in a fork of a process that has computed some with compiled code.
        torch.ones((), requires_grad=True).backward()
        return _Answer()

    def computed(share: Sequence[T]) -> _Answer:
        loss, gradients = _gradients(parameters, share, loss_of)
        for target, gradient in zip(shared, gradients, strict=True):
            if gradient is not None:
                target.copy_(gradient)
        return _Answer(loss, tuple(gradient is not None for gradient in gradients))

    connection.send(_tried(first))
    while True:
        try:
            share = connection.recv()
        except EOFError:
            return
        connection.send(_tried(lambda: computed(share)))


def _tried(compute: Callable[[], _Answer]) -> _Answer:
    try:
        return compute()
    except Exception as error:  # whatever it is, this process's parent raises it
        logger.info("gradients of a share: %s", error, exc_info=True)
        return _Answer(error=(getattr(error, "code", ""), str(error) or type(error).__name__))


def _gradients(
    parameters: Sequence[nn.Parameter], share: Sequence[T], loss_of: Callable[[T], Tensor]
) -> tuple[float, Gradients]:
    total: Gradients = [None] * len(parameters)
    loss = 0.0
    for part in share:
        value = loss_of(part)
        for at, gradient in enumerate(torch.autograd.grad(value, parameters, allow_unused=True)):
            before = total[at]
            if gradient is not None:
                total[at] = gradient if before is None else before + gradient
        loss += value.item()
    return loss, total


def _shared_like(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Zeros of these shapes and dtypes, each in memory of its own that later forks share. The memory is anonymous: the
    size of /dev/shm does not bound it, and the kernel frees it when the last process ends.
    """
    memory = lambda one: torch.frombuffer(mmap.mmap(-1, one.numel() * one.element_size()), dtype=one.dtype)  # noqa: E731
    return [memory(one).view(one.shape) if one.numel() > 0 else torch.zeros_like(one) for one in tensors]


def _limit_sends(connection: Connection) -> None:
    """Makes a send raise BlockingIOError if the other side does not read for ANSWER_S."""
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(ANSWER_S), int(ANSWER_S % 1 * 1e6)))


def parallel_gradients(
    model: nn.Module, device: torch.device, loss_of: Callable[[T], Tensor]
) -> ParallelGradients[T] | None:
    """Returns ParallelGradients for a model of at most MOST_PARAMETERS on a CPU under Linux, if torch has several
    threads; else None. Returns None, too, if torch computes no gradients in forks.
    """
    threads = torch.get_num_threads()
    size = sum(parameter.numel() for parameter in model.parameters())
    if device.type != "cpu" or threads < 2 or size > MOST_PARAMETERS or sys.platform != "linux":
        return None
    try:
        return ParallelGradients(model, min(threads, MOST_PROCESSES), loss_of)
    except ForkRefused as error:
        logger.warning("gradients are computed in one process: %s", error)
        return None
