"""The reference policy of a KL term: a copy of the trained parameters in the host's memory.

In: the parameters at the time when the reference is taken. Out: those parameters in the model, for the length of a `with`.
Invariant: afterwards the current parameters are back, bit for bit. With adapters (LoRA) only the adapters are copied, since
untrained adapters are the base model. No second model is ever on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .ranks.shards import as_shard, gathered, local_shard, sharded_copy


class Reference:
    """With several ranks, each rank holds its own shard of the reference."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._kept: dict[str, Tensor] = {}
        # Number of references taken or loaded since the last `drop`; 0 means that there is none. A checkpoint links
        # the file of a version that was saved before, instead of writing it again.
        self.version = 0

    @property
    def is_taken(self) -> bool:
        return self.version > 0

    def take(self) -> None:
        """Makes the current policy the reference."""
        self._kept = self._copies()
        self.version += 1

    def drop(self) -> None:
        self._kept, self.version = {}, 0

    def load(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Loads a saved reference: whole tensors by the names of the parameters."""
        self._kept = {name: local_shard(sharded_copy(self._parameters[name], value)).cpu() for name, value in named}
        self.version += 1

    def gathered(self, is_leader: bool) -> dict[str, Tensor]:
        """Gathers the reference as whole tensors on the leading rank; see shards.gathered."""
        named = self._parameters.items()
        shards = ((name, as_shard(p, self._kept[name].to(local_shard(p).device))) for name, p in named)
        return gathered(shards, is_leader)

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
