"""Gradients of several micro-batches at once on a CPU, each in a thread that computes alone.

A small model's operations are too short to be worth spreading over cores: two threads that share each operation of the
quickstart's model need 0.7 of one thread's time, two threads with half of the sequences each about half of it.

In: micro-batches, or what they are made from, in as many lists as there are threads; a function from one to its loss.
Out: the sum of the losses, and gradients in `.grad`.
Invariant: gradients are summed in the order of the lists, so the same lists give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Barrier
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")

# Upper bound on a model's parameters: above it, an operation's own threads are as fast, and need one gradient instead of
# one for each thread.
MOST_PARAMETERS = 4_000_000


class ParallelGradients:
    """`threads`: number of micro-batches at once."""

    def __init__(self, parameters: Iterable[nn.Parameter], threads: int) -> None:
        self.threads = threads
        self._parameters = list(parameters)
        own, met = torch.get_num_threads(), Barrier(threads + 1)

        def alone() -> None:
            # torch keeps this number for each thread. The first reading takes what was set last in any thread, so it
            # comes before the thread's own value.
            torch.get_num_threads()
            torch.set_num_threads(1)
            met.wait()

        self._pool = ThreadPoolExecutor(threads, "gradient", alone)
        for _ in range(threads):
            self._pool.submit(int)
        met.wait()
        torch.set_num_threads(own)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The caller's operations run in its own thread alone: the threads that share them otherwise wait for the next one
        on the cores that `backward` needs.
        """
        own = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(own)

    def backward(self, shares: Sequence[Sequence[T]], loss_of: Callable[[T], Tensor]) -> float:
        """Adds to `.grad` the gradients of all losses; returns their sum. Raises the first error of a thread when all
        threads have ended.
        """
        asked = [self._pool.submit(self._share, share, loss_of) for share in shares if share]
        wait(asked)
        loss = 0.0
        for part, gradients in [one.result() for one in asked]:
            loss += part
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        return loss

    def _share(
        self, share: Sequence[T], loss_of: Callable[[T], Tensor]
    ) -> tuple[float, list[Tensor | None]]:
        total: list[Tensor | None] = [None] * len(self._parameters)
        loss = 0.0
        for one in share:
            part = loss_of(one)
            for at, gradient in enumerate(torch.autograd.grad(part, self._parameters, allow_unused=True)):
                before = total[at]
                if gradient is not None:
                    total[at] = gradient if before is None else before + gradient
            loss += part.item()
        return loss, total


def parallel_gradients(model: nn.Module, device: torch.device) -> ParallelGradients | None:
    """For a small model on a CPU with several threads; else None."""
    threads = torch.get_num_threads()
    size = sum(parameter.numel() for parameter in model.parameters())
    if device.type != "cpu" or threads < 2 or size > MOST_PARAMETERS:
        return None
    return ParallelGradients((p for p in model.parameters() if p.requires_grad), threads)
