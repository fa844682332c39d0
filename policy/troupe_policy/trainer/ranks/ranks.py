"""The processes of one trainer: what they must agree on, and how the first one leads the others.

In: the environment that torchrun sets (RANK, WORLD_SIZE, …), or nothing for a trainer of one process.
Out: sums and flags over all ranks, the calls of rank 0 on every other, a share of the work for each.
Invariants: what decides (a sum, a flag) is the same number on every rank, so that all do the same; who waits for another
waits at most `timeout_s`, except for the next call, which may come any time; a rank whose leader is gone ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

# Between two calls lie the rollouts of a step.
IDLE_TIMEOUT = timedelta(days=30)


class Ranks:
    """This process among `size`. Alone, every call is answered without communication."""

    def __init__(self, rank: int = 0, size: int = 1, timeout_s: float = 600.0) -> None:
        self.rank, self.size = rank, size
        self.timeout = timedelta(seconds=timeout_s)
        self._orders: dist.ProcessGroup | None = None
        if size > 1:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, rank=rank, world_size=size, timeout=self.timeout)
            self._control = dist.new_group(backend="gloo", timeout=self.timeout)
            self._orders = dist.new_group(backend="gloo", timeout=IDLE_TIMEOUT)

    @staticmethod
    def from_environment(timeout_s: float = 600.0) -> Ranks:
        return Ranks(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")), timeout_s)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def device(self, asked: torch.device) -> torch.device:
        """Of this rank, where several ranks share a machine's GPUs."""
        if self.size == 1 or asked.type != "cuda":
            return asked
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        if local >= torch.cuda.device_count():
            raise ValueError(f"rank {local} of this machine has no GPU: {torch.cuda.device_count()} are visible")
        torch.cuda.set_device(local)
        return torch.device("cuda", local)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Element by element over all ranks."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total, group=self._control)
        return total.tolist()

    def any(self, flag: bool) -> bool:
        return flag if self.size == 1 else self.sum([float(flag)])[0] > 0

    def from_leader(self, value: object) -> object:
        """What rank 0 gave; the others' values are ignored."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def order(self, value: object = None) -> object:
        """Rank 0 tells the others its next call; they wait for it here, as long as it takes."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._orders)
        return box[0]

    def shares(self, costs: Sequence[int]) -> list[list[int]]:
        """Indices of `costs` for each rank, of nearly equal sums: the largest goes to whoever has least so far."""
        parts: list[list[int]] = [[] for _ in range(self.size)]
        sums = [0] * self.size
        for index in sorted(range(len(costs)), key=lambda at: (-costs[at], at)):
            least = min(range(self.size), key=lambda rank: (sums[rank], rank))
            parts[least].append(index)
            sums[least] += costs[index]
        return parts
