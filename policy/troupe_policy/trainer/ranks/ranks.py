"""The processes (ranks) of one trainer: rank 0 leads, the others make the same calls.

In: the environment that torchrun sets (RANK, WORLD_SIZE, …), or nothing for a trainer of one process.
Out: sums and flags over all ranks, rank 0's values and calls on every other rank, a share of the work for each.
Invariants: a sum or flag on which a decision depends is the same on every rank, so all ranks decide alike. A rank
waits at most `timeout_s` for another, except for the next call, for which it waits up to 30 days (IDLE_TIMEOUT). A
rank whose leader is gone ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

# Upper bound on the wait for the next call: the rollouts of a step happen between two calls.
IDLE_TIMEOUT = timedelta(days=30)


class Ranks:
    """This process as one of `size` ranks. With a single rank every method returns without communication."""

    def __init__(self, rank: int = 0, size: int = 1, timeout_s: float = 600.0) -> None:
        self.rank, self.size = rank, size
        self.timeout = timedelta(seconds=timeout_s)
        self._control: dist.ProcessGroup | None = None
        self._calls: dist.ProcessGroup | None = None
        # Group of the threads that write checkpoints beside training; None with a single rank.
        self.background: dist.ProcessGroup | None = None
        if size > 1:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, rank=rank, world_size=size, timeout=self.timeout)
            self._control = dist.new_group(backend="gloo", timeout=self.timeout)
            self._calls = dist.new_group(backend="gloo", timeout=IDLE_TIMEOUT)
            self.background = dist.new_group(backend="gloo", timeout=self.timeout)

    @staticmethod
    def from_environment(timeout_s: float = 600.0) -> Ranks:
        return Ranks(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")), timeout_s)

    @property
    def control(self) -> dist.ProcessGroup | None:
        """Group for collective calls of the trainer's thread over CPU tensors; None with a single rank."""
        return self._control

    @property
    def is_leader(self) -> bool:
        return self.rank == 0

    def device(self, asked: torch.device) -> torch.device:
        """This rank's own GPU if there are several ranks and `asked` is a GPU; else `asked`. Raises ValueError if there
        is no GPU for this rank.
        """
        if self.size == 1 or asked.type != "cuda":
            return asked
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        if local >= torch.cuda.device_count():
            raise ValueError(f"rank {local} of this machine has no GPU: {torch.cuda.device_count()} are visible; expected one for each rank")
        torch.cuda.set_device(local)
        return torch.device("cuda", local)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over all ranks, element by element, in float64. Collective."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total, group=self._control)
        return total.tolist()

    def any(self, flag: bool) -> bool:
        """True on every rank if `flag` is true on at least one. Collective."""
        return flag if self.size == 1 else self.sum([float(flag)])[0] > 0

    def every(self, value: object) -> list:
        """All ranks' values except None, on every rank, in the ranks' order. Collective."""
        values: list[object] = [value]
        if self.size > 1:
            values = [None] * self.size
            dist.all_gather_object(values, value, group=self._control)
        return [one for one in values if one is not None]

    def broadcast(self, value: object) -> object:
        """Rank 0's value on every rank; the other ranks' values are ignored. Collective."""
        return self._broadcast(value, self._control)

    def scatter(self, value_of: Callable[[int], object]) -> object:
        """Rank 0's `value_of(rank)` on each rank; the other ranks' functions are ignored. Rank 0 makes and sends one
        value at a time. Collective.
        """
        if self.is_leader:
            for rank in range(1, self.size):
                dist.send_object_list([value_of(rank)], dst=rank, group=self._control)
            return value_of(0)
        box: list[object] = [None]
        dist.recv_object_list(box, src=0, group=self._control)
        return box[0]

    def broadcast_call(self, value: object = None) -> object:
        """Rank 0's next call on every rank. The other ranks wait for it here, up to IDLE_TIMEOUT. Collective."""
        return self._broadcast(value, self._calls)

    def _broadcast(self, value: object, group: dist.ProcessGroup | None) -> object:
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=group)
        return box[0]
