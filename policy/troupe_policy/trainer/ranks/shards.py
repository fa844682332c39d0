"""Conversions between whole tensors and the shards that each rank holds.

In: plain tensors or DTensors (FSDP2). Out: the same kind. Invariant: on one rank every function gives the same values,
at most copied and converted to a dtype. A function that gathers is a collective call: every rank must make it, in the
same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def local_shard(tensor: Tensor) -> Tensor:
    """Part of a tensor that this rank holds, or all of an unsharded tensor. It shares the tensor's memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor on every rank. Collective."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gathered(named: Iterable[tuple[str, Tensor]], is_leader: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    """Whole tensors by name, on the CPU of the leading rank; {} on the others. Collective. dtype: the floating-point
    ones are converted to it.

    Gathers one tensor at a time: no device, and no rank but the leader, holds more than one of them whole.
    """
    kept: dict[str, Tensor] = {}
    for name, tensor in named:
        full = whole(tensor.detach())
        if is_leader:
            kept[name] = _as(full, dtype).cpu().contiguous()
    return kept


def gathered_weights(model: nn.Module, is_leader: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    """All weights of the model, gathered as `gathered` does; tied weights are one tensor under several names."""
    values = model.state_dict(keep_vars=True)
    first = {id(value): name for name, value in reversed(values.items())}
    kept = gathered(((name, values[name]) for name in first.values()), is_leader, dtype)
    return {name: kept[first[id(value)]] for name, value in values.items()} if is_leader else {}


def converted(weights: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The same weights, the floating-point ones in `dtype`; a tensor under several names stays one tensor."""
    done: dict[int, Tensor] = {}
    return {name: done.setdefault(id(value), _as(value, dtype)) for name, value in weights.items()}


def _as(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def sharded_copy(parameter: Tensor, value: Tensor) -> Tensor:
    """Copies the whole tensor `value` to the parameter's device, sharded as the parameter is.

    Every rank has read the same file, so each cuts its own shard out and nothing is sent.
    """
    moved = copy_to_device(parameter, value)
    if not isinstance(parameter, DTensor):
        return moved
    return distribute_tensor(moved, parameter.device_mesh, parameter.placements, src_data_rank=None)


def as_shard(parameter: Tensor, part: Tensor) -> Tensor:
    """Wraps `part`, this rank's shard of a tensor of the parameter's shape, as a tensor sharded as the parameter is."""
    if not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
    )


def copy_to_device(parameter: Tensor, value: Tensor) -> Tensor:
    """Copies `value` to the device of the parameter's shard."""
    return value.to(local_shard(parameter).device, copy=True)
