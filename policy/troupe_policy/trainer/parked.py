"""Moves tensors' memory to the host for a while, so that another process can use the device.

In: tensors of a device. Out: the same tensors without memory, and later with the same bits again.
Invariant: tensors, their storages and views of them stay the same objects, so FSDP2, the optimizer and tied weights
keep what they refer to. Between `park` and `restore` no tensor may be read. A storage that torch cannot resize (a file
mapped into memory, on a CPU) keeps its memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .ranks.shards import local_shard


class Parked:
    """Parks tensors (moves their memory to the host) and restores them. Nothing is parked at first."""

    def __init__(self) -> None:
        self._kept: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []

    @property
    def is_parked(self) -> bool:
        return bool(self._kept)

    def park(self, tensors: Iterable[Tensor]) -> int:
        """Moves the memory of these tensors to the host. Returns the number of moved bytes; 0 if tensors are parked
        already.
        """
        if self._kept:
            return 0
        storages = {storage.data_ptr(): storage for storage in (local_shard(t).untyped_storage() for t in tensors)}
        for storage in storages.values():
            if storage.nbytes() == 0 or not storage.resizable():
                continue
            # clone: on a CPU, `cpu` would return the storage itself
            self._kept.append((storage, storage.clone() if storage.device.type == "cpu" else storage.cpu()))
            storage.resize_(0)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return sum(copy.nbytes() for _, copy in self._kept)

    def restore(self) -> None:
        """Gives every tensor its memory and its bits back."""
        for storage, copy in self._kept:
            storage.resize_(copy.nbytes())
            storage.copy_(copy)
        self._kept = []
