"""Shards one model over several ranks with FSDP2's `fully_shard`, and copies whole tensors into the shards.

In: a causal LM on every rank, with weights only on rank 0. Out: the same model, with a shard of every parameter on
each rank.
Invariants: gradients are summed over ranks, not averaged, because losses are divided by a count of the whole batch.
Only rank 0 ever holds all weights whole, in the host's memory; while they are copied, another rank holds one whole
tensor at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from accelerate import init_empty_weights
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from .ranks import Ranks


def empty_model(directory: str) -> PreTrainedModel:
    """Makes the model of `directory` in float32 without its weights; memory that is never written takes no pages."""
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    model.to_empty(device="cpu")
    for name, value in model.named_buffers():
        value.copy_(buffers[name])
    model.tie_weights()
    return model


def shard(policy: nn.Module, model: nn.Module, ranks: Ranks, device: torch.device, *, half: bool) -> None:
    """Shards every layer separately and the rest together, with rank 0's weights. half: layers are gathered and run in
    bfloat16.
    """
    weights = dict(model.state_dict()) if ranks.is_leader else None
    mesh = init_device_mesh(device.type, (ranks.size,))
    mixed = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if half else MixedPrecisionPolicy()
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for module in [*layers, policy]:
        fully_shard(module, mesh=mesh, mp_policy=mixed, reshard_after_forward=True)
    for module in policy.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # Reductions sum: the loss is divided by a count of the whole batch, and gloo has no averaging reduction.
            module.set_force_sum_reduction_for_comms(True)
    for _, value in model.named_buffers():
        value.data = value.data.to(device)
    put_whole(model, weights, ranks)


@torch.no_grad()
def put_whole(
    model: nn.Module, weights: Mapping[str, Tensor] | None, ranks: Ranks, *, trainable_only: bool = False
) -> None:
    """Copies rank 0's whole tensors into the model, by name. The other ranks pass None. trainable_only: skip tensors
    that need no gradient. Collective.
    """
    done: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in done or (trainable_only and not tensor.requires_grad):
            continue
        done.add(id(tensor))
        if not isinstance(tensor, DTensor):
            value = ranks.broadcast(weights[name].cpu() if weights is not None else None)
            tensor.copy_(value)
            continue
        local = tensor.to_local()
        given = weights[name].to(local.device, local.dtype) if weights is not None else None
        full = given if given is not None else torch.empty(tensor.shape, dtype=local.dtype, device=local.device)
        local.copy_(distribute_tensor(full.contiguous(), tensor.device_mesh, tensor.placements).to_local())


def drop_unreduced(policy: nn.Module) -> None:
    """Drops gradients that backward passes left on this rank without a reduction: FSDP2 would add them to the next
    ones, and no public method of FSDP2 drops them.
    """
    for module in policy.modules():
        if not isinstance(module, FSDPModule) or (group := module._get_fsdp_state()._fsdp_param_group) is None:
            continue
        for parameter in group.fsdp_params:
            parameter.unsharded_accumulated_grad = None
            if (whole := getattr(parameter, "_unsharded_param", None)) is not None:
                whole.grad = None
