"""AdamW over the trained parameters; an update is applied whole or not at all.

In: gradients in `.grad`, a loss, a learning rate. Out: changed parameters, the gradient's norm, the optimizer's state
by name.
Invariants: loss and gradient are checked before the first parameter changes, with the same result on every rank;
restoring a snapshot gives back the state that it was taken from, bit for bit. With several ranks each holds and
copies its own shard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..model.checkpoint import CheckpointError
from .options import TrainerError
from .ranks.shards import as_shard, copy_to_device, local_shard, sharded_copy, whole


@dataclass(frozen=True)
class Snapshot:
    weights: dict[str, Tensor]
    state: dict[str, Tensor]
    updates: int


class Optimizer:
    """`parameters`: the trained parameters, by name. `updates`: number of updates that the moments hold; 0 after
    `reset`.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = dict(parameters)
        self.updates = 0
        self.adamw = self._fresh()

    def _fresh(self) -> torch.optim.AdamW:
        # No weight decay: at RL's learning rates its effect is below float32 precision; arXiv 2508.20722 names none.
        return torch.optim.AdamW(
            list(self.parameters.values()), lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True
        )

    def reset(self) -> None:
        """Drops all moments and sets `updates` to 0."""
        self.adamw, self.updates = self._fresh(), 0

    def apply(self, loss: float, rate: float, max_grad_norm: float) -> float:
        """Checks, clips and applies the gradients. Returns the gradient's norm before clipping.

        loss: loss of the whole batch, the same number on every rank. max_grad_norm: 0 turns clipping off.
        Raises TrainerError trainer.not_finite with nothing changed.
        """
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(gradients)).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise TrainerError(
                "trainer.not_finite", f"the loss is {loss} and the gradient norm {norm}, expected finite numbers: the update was not applied"
            )
        if max_grad_norm > 0 and norm > max_grad_norm:
            torch._foreach_mul_([local_shard(gradient) for gradient in gradients], max_grad_norm / (norm + 1e-6))
        for group in self.adamw.param_groups:
            group["lr"] = rate
        self.adamw.step()
        self.drop_gradients()
        self.updates += 1
        return norm

    def drop_gradients(self) -> None:
        self.adamw.zero_grad(set_to_none=True)

    def named_state(self) -> Iterator[tuple[str, Tensor]]:
        """Optimizer state as ('<kind>/<parameter>', tensor) for AdamW's kinds exp_avg, exp_avg_sq and step; empty
        before the first update.
        """
        for name, parameter in self.parameters.items():
            for kind, value in self.adamw.state.get(parameter, {}).items():
                yield f"{kind}/{name}", value

    def load_state(self, named: Iterable[tuple[str, Tensor]], updates: int) -> None:
        """Loads optimizer state from whole tensors, named as `named_state` names them.

        Raises CheckpointError trainer.shape_mismatch; the optimizer is fresh then.
        """
        self.reset()
        for key, value in named:
            kind, _, name = key.partition("/")
            parameter = self.parameters.get(name)
            if parameter is None or (kind != "step" and value.shape != parameter.shape):
                self.reset()
                raise CheckpointError(
                    "trainer.shape_mismatch",
                    f"the optimizer's state {key} {list(value.shape)} fits no trained parameter: it belongs to another "
                    "model, or to other adapters (train.lora)",
                )
            # The step count is a plain number on every rank, but the fused kernel needs it on the device.
            part = copy_to_device(parameter, value) if kind == "step" else sharded_copy(parameter, value)
            self.adamw.state[parameter][kind] = part
        self.updates = updates

    def prepare_state(self, names: Iterable[str], prefix: str, updates: int) -> None:
        """Replaces the optimizer's state by zero tensors, into which a checkpoint is read. names: names of all the
        checkpoint's tensors; the optimizer's begin with `prefix`, and go on with a name as `named_state` gives it.
        """
        self.reset()
        for name in names:
            if not name.startswith(prefix):
                continue
            kind, _, own = name.removeprefix(prefix).partition("/")
            parameter = self.parameters[own]
            whole_tensor = torch.zeros((), device=local_shard(parameter).device) if kind == "step" else None
            self.adamw.state[parameter][kind] = torch.zeros_like(parameter.detach()) if whole_tensor is None else whole_tensor
        self.updates = updates

    def snapshot(self) -> Snapshot:
        """Copies this rank's shards of parameters and optimizer state to the host's memory."""
        with torch.no_grad():
            weights = {name: local_shard(p).detach().to("cpu", copy=True) for name, p in self.parameters.items()}
            state = {key: local_shard(value).detach().to("cpu", copy=True) for key, value in self.named_state()}
        return Snapshot(weights, state, self.updates)

    def restore(self, snapshot: Snapshot) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                local_shard(parameter).copy_(snapshot.weights[name])
        self.reset()
        for key, value in snapshot.state.items():
            kind, _, name = key.partition("/")
            parameter = self.parameters[name]
            part = copy_to_device(parameter, value)
            self.adamw.state[parameter][kind] = part if kind == "step" else as_shard(parameter, part)
        self.updates = snapshot.updates
