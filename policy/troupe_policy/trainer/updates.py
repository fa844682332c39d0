"""Parameters and their AdamW: updates that happen whole or not at all.

In: gradients in `.grad`, a loss, a learning rate. Out: changed parameters, the gradient's norm, the optimizer's state by name.
Invariants: loss and gradient are checked before the first parameter changes, with the same answer on every rank; a restored
snapshot is the state that it was taken from, bit for bit. On several ranks each holds and copies its own shard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from ..model.checkpoint import CheckpointError
from .options import TrainerError


@dataclass(frozen=True)
class Snapshot:
    weights: dict[str, Tensor]
    state: dict[str, Tensor]
    updates: int


class Updates:
    """`parameters`: those that are trained, by name. `updates` counts since the optimizer was fresh."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = dict(parameters)
        self.updates = 0
        self.optimizer = self._new()

    def _new(self) -> torch.optim.AdamW:
        # No weight decay: at the learning rates of RL it is below what float32 keeps, and the paper names none.
        return torch.optim.AdamW(
            list(self.parameters.values()), lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True
        )

    def fresh(self) -> None:
        """Forgets all moments."""
        self.optimizer, self.updates = self._new(), 0

    def apply(self, loss: float, rate: float, max_grad_norm: float) -> float:
        """Checks, clips, updates; returns the norm before clipping. Raises trainer.not_finite with nothing changed.

        loss: of the whole batch, the same number on every rank. max_grad_norm: 0 is no clipping.
        """
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(gradients)).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise TrainerError("trainer.not_finite", f"loss {loss}, gradient norm {norm}: the step changed nothing")
        if max_grad_norm > 0 and norm > max_grad_norm:
            torch._foreach_mul_([own(gradient) for gradient in gradients], max_grad_norm / (norm + 1e-6))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.clear()
        self.updates += 1
        return norm

    def clear(self) -> None:
        """Drops gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def named_state(self) -> Iterator[tuple[str, Tensor]]:
        """('<what>/<parameter>', tensor); nothing before the first update."""
        for name, parameter in self.parameters.items():
            for what, value in self.optimizer.state.get(parameter, {}).items():
                yield f"{what}/{name}", value

    def load_state(self, flat: Iterable[tuple[str, Tensor]], updates: int) -> None:
        """Takes over a state of whole tensors, as `named_state` names them. Raises CheckpointError trainer.shape_mismatch, with a fresh optimizer."""
        self.fresh()
        for key, value in flat:
            what, _, name = key.partition("/")
            parameter = self.parameters.get(name)
            if parameter is None or (what != "step" and value.shape != parameter.shape):
                self.fresh()
                raise CheckpointError(
                    "trainer.shape_mismatch",
                    f"the optimizer's {key} {list(value.shape)} fits no parameter that is trained here: it is of another "
                    "model, or of other adapters (train.lora)",
                )
            # the count of steps is a plain number on every rank; the fused kernel wants it on the device
            part = _copied(parameter, value) if what == "step" else like(parameter, value)
            self.optimizer.state[parameter][what] = part
        self.updates = updates

    def snapshot(self) -> Snapshot:
        with torch.no_grad():
            weights = {name: own(p).detach().to("cpu", copy=True) for name, p in self.parameters.items()}
            state = {name: own(value).detach().to("cpu", copy=True) for name, value in self.named_state()}
        return Snapshot(weights, state, self.updates)

    def restore(self, snapshot: Snapshot) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                own(parameter).copy_(snapshot.weights[name])
        self.fresh()
        for key, value in snapshot.state.items():
            what, _, name = key.partition("/")
            parameter = self.parameters[name]
            part = _copied(parameter, value) if what == "step" else sharded_like(parameter, _copied(parameter, value))
            self.optimizer.state[parameter][what] = part
        self.updates = snapshot.updates


def own(tensor: Tensor) -> Tensor:
    """The part of it that this rank holds; all of it where it is not sharded. Shares its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gathered(named: Iterable[tuple[str, Tensor]], leads: bool) -> dict[str, Tensor]:
    """All of every tensor by name, on the CPU, on the rank that leads; {} on the others, which must ask for the same.

    One at a time: no device, and no rank that does not lead, holds more than one of them whole.
    """
    kept: dict[str, Tensor] = {}
    for name, tensor in named:
        full = whole(tensor.detach())
        if leads:
            kept[name] = full.cpu().contiguous()
    return kept


def gathered_weights(model: nn.Module, leads: bool) -> dict[str, Tensor]:
    """`gathered` of all weights; tied ones are one tensor."""
    values = model.state_dict(keep_vars=True)
    first = {id(value): name for name, value in reversed(values.items())}
    kept = gathered(((name, values[name]) for name in first.values()), leads)
    return {name: kept[first[id(value)]] for name, value in values.items()} if leads else {}


def whole(tensor: Tensor) -> Tensor:
    """All of it, gathered from every rank: every rank must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy of a whole `value` on the parameter's device, sharded as the parameter is."""
    moved = _copied(parameter, value)
    if not isinstance(parameter, DTensor):
        return moved
    # every rank has read the same file: each cuts its own shard out, and nothing is sent
    return distribute_tensor(moved, parameter.device_mesh, parameter.placements, src_data_rank=None)


def sharded_like(parameter: Tensor, part: Tensor) -> Tensor:
    """`part` is this rank's shard of something of the parameter's form."""
    if not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
    )


def _copied(parameter: Tensor, value: Tensor) -> Tensor:
    return value.to(own(parameter).device, copy=True)
