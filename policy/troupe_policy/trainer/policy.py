"""The policy: a causal LM whose forward gives log-probabilities of chosen tokens, and never all of its logits.

In: a transformers model and micro-batches. Out: log-probabilities with a graph, and entropies.
Invariant: what it computes is what the model's own logits say (compared on a few tokens when it is made); a model whose
attention cannot be packed is run on padded rows instead.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..model.logprobs import Head, check_head, chunked_logprobs, head_of, hidden_states_of
from .batch.micro_batch import MicroBatch
from .batch.packed_attention import ATTENTION, UnsupportedAttention, layout_of


class Policy(nn.Module):
    """Owns the model. `packed`: whether sequences are laid end to end."""

    def __init__(self, model: nn.Module, *, checked: bool = True, packed: bool | None = None) -> None:
        """checked: compare with the model's own logits. packed: None tries; else what another rank found out."""
        super().__init__()
        self.model = model
        hidden_states = hidden_states_of(model)
        self.head = head_of(model)
        if checked:
            check_head(model, self.head, hidden_states)
        self.packed = can_pack(model) if packed is None else packed
        if self.packed:
            model.set_attn_implementation(ATTENTION)  # type: ignore[operator]

    def forward(
        self, micro: MicroBatch, temperature: float, with_entropy: bool, half: bool
    ) -> tuple[Tensor, Tensor | None]:
        """[trained] log-probabilities of the micro-batch's trained tokens, with a graph, and their entropies.

        half: the products run in bfloat16 (the head's too); the log-probabilities are float32.
        """
        if micro.layout is not None:
            micro.layout()
        base = self.model.base_model
        with torch.autocast(micro.ids.device.type, dtype=torch.bfloat16, enabled=half):
            states = base(input_ids=micro.ids, position_ids=micro.places, use_cache=False).last_hidden_state
        picked = states.reshape(-1, states.shape[-1]).index_select(0, micro.positions)
        if half:
            picked = picked.bfloat16()
        # looked up anew: a sharded head is another tensor while its layers are gathered
        layer = self.model.get_output_embeddings()  # type: ignore[operator]
        head = Head(layer.weight, getattr(layer, "bias", None), self.head.scale, self.head.softcap)
        return chunked_logprobs(picked, head, micro.targets, temperature=temperature, with_entropy=with_entropy)

    def checkpoint_layers(self) -> None:
        """Activations of a layer are computed again in the backward pass instead of being kept.

        Raises ValueError where the architecture has no layers that can.
        """
        self.model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        layers = [module for module in self.model.modules() if isinstance(module, GradientCheckpointingLayer)]
        if not layers:
            raise ValueError(f"{type(self.model).__name__} has no layers whose activations can be computed again")
        for layer in layers:
            # a layer looks at its own mode; what is inside it stays in evaluation mode, without dropout
            layer.training = True


@torch.no_grad()
def can_pack(model: nn.Module) -> bool:
    """Whether sequences laid end to end have the states that they have alone, compared on three short ones."""
    base, device = model.base_model, next(model.parameters()).device
    vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    rows = [(torch.arange(n, device=device) * 7919 + n) % vocabulary for n in (6, 5, 2)]
    alone = torch.cat([base(input_ids=row[None], use_cache=False).last_hidden_state[0] for row in rows])  # type: ignore[operator]
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(ATTENTION)  # type: ignore[operator]
        layout_of([len(row) for row in rows], device)()
        places = torch.cat([torch.arange(len(row), device=device) for row in rows])[None]
        packed = base(input_ids=torch.cat(rows)[None], position_ids=places, use_cache=False).last_hidden_state[0]  # type: ignore[operator]
    except (UnsupportedAttention, ValueError, RuntimeError, TypeError):
        return False
    finally:
        model.set_attn_implementation(before)  # type: ignore[operator]
    tolerance = 1e-4 if alone.dtype == torch.float32 else 5e-2
    return torch.allclose(packed, alone, atol=tolerance * (1.0 + alone.abs().max().item()))
