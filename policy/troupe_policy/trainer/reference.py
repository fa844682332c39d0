"""The reference policy of a KL term: a copy of the trained parameters, kept in the host's memory.

In: the parameters as they are when it is taken. Out: the same parameters in place of the current ones, for a while.
Invariant: afterwards the current ones are back, bit for bit. With adapters (LoRA) only those are copied: adapters that were
never trained are the base model. No second model is ever on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .updates import gathered, like, own, sharded_like


class Reference:
    """On several ranks, each holds its shard."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._kept: dict[str, Tensor] = {}
        # which taking of a reference this is: one that was saved need not be saved again
        self.taken = 0

    @property
    def is_taken(self) -> bool:
        return self.taken > 0

    def take(self) -> None:
        """From now on the reference is what the policy is now."""
        self._kept = {name: own(p).detach().to("cpu", copy=True) for name, p in self._parameters.items()}
        self.taken += 1

    def drop(self) -> None:
        self._kept, self.taken = {}, 0

    def put(self, whole_tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Takes over a reference that was saved, by the names of the parameters."""
        self._kept = {name: own(like(self._parameters[name], value)).cpu() for name, value in whole_tensors}
        self.taken += 1

    def gathered(self, leads: bool) -> dict[str, Tensor]:
        """See updates.gathered."""
        shards = ((name, sharded_like(p, self._on_device(name))) for name, p in self._parameters.items())
        return gathered(shards, leads)

    def _on_device(self, name: str) -> Tensor:
        return self._kept[name].to(own(self._parameters[name]).device)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        current = {name: own(p).detach().to("cpu", copy=True) for name, p in self._parameters.items()}
        try:
            self._put(self._kept)
            yield
        finally:
            self._put(current)

    def _put(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                own(parameter).copy_(values[name])
