"""The reference policy of a KL term: a copy of the trained parameters in the host's memory.

In: the parameters at the time when the reference is taken. Out: those parameters in the model, for the length of a
`with`.
Invariant: after the `with` the current parameters are back, bit for bit. With adapters (LoRA) only the adapters are
copied, since untrained adapters are the base model. No second model is on the device, with two exceptions: with several
ranks, a checkpoint that writes the reference has this rank's shard of it there until the checkpoint has its copy; and a
saved reference is read into tensors on the device (`empty_shards`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from .ranks.shards import as_shard, local_shard, sharded_copy


class Reference:
    """With several ranks, each rank holds its own shard of the reference."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._kept: dict[str, Tensor] = {}
        # Number of references taken or loaded so far, so no two references share a number. A checkpoint links the files
        # of a version that was saved before, instead of writing them again.
        self.version = 0

    @property
    def is_taken(self) -> bool:
        return bool(self._kept)

    def take(self) -> None:
        """Makes the current policy the reference."""
        self._kept = self._copies()
        self.version += 1

    def drop(self) -> None:
        self._kept = {}

    def load(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Loads a saved reference: whole tensors by the names of the parameters."""
        self._kept = {name: local_shard(sharded_copy(self._parameters[name], value)).cpu() for name, value in named}
        self.version += 1

    def sharded(self) -> dict[str, Tensor]:
        """The reference as tensors sharded as the parameters are, for a checkpoint. Plain tensors stay in the host's
        memory.
        """
        return {name: self._sharded(p, self._kept[name]) for name, p in self._parameters.items()}

    @staticmethod
    def _sharded(parameter: nn.Parameter, kept: Tensor) -> Tensor:
        return as_shard(parameter, kept.to(parameter.to_local().device)) if isinstance(parameter, DTensor) else kept

    def empty_shards(self) -> dict[str, Tensor]:
        """Tensors shaped and sharded as the parameters are, to read a saved reference into."""
        return {name: torch.empty_like(p.detach()) for name, p in self._parameters.items()}

    def load_shards(self, named: Mapping[str, Tensor]) -> None:
        """Loads a saved reference that was read into `empty_shards`."""
        self._kept = {name: local_shard(value).cpu() for name, value in named.items()}
        self.version += 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replaces the model's parameters by the reference's for the length of the block."""
        current = self._copies()
        try:
            self._write(self._kept)
            yield
        finally:
            self._write(current)

    def _copies(self) -> dict[str, Tensor]:
        return {name: local_shard(p).detach().to("cpu", copy=True) for name, p in self._parameters.items()}

    def _write(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                local_shard(parameter).copy_(values[name])
