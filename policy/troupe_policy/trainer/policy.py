"""The policy: a causal LM whose forward pass gives log-probabilities of chosen tokens and never holds the logits of all
tokens at once.

In: a transformers model and micro-batches. Out: log-probabilities with a graph, and entropies.
Invariants: log-probabilities agree with the model's own logits (compared on a few tokens when the policy is made,
unless `checked` is false). A model that cannot attend to sequences laid end to end (packed) runs on padded rows,
unless the recipe names the kernel varlen or flex: then it is refused.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..model.logprobs import Head, check_head, chunked_logprobs, head_of, hidden_states_of
from .batch.micro_batch import MicroBatch
from .batch.last_mlp import LastMlp
from .batch.attention_kernels import ATTENTIONS, kernel_works
from .batch.packed_attention import UnsupportedAttention, layout_of

logger = logging.getLogger("troupe_policy")


class Policy(nn.Module):
    """Owns the model. `packed`: true if the sequences of a micro-batch are laid end to end, false if they are padded
    rows. `attention`: the kernel of packed sequences, or `padded`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        checked: bool = True,
        attention: str = "sdpa",
        named: bool = False,
        device: torch.device | None = None,
        decided: tuple[str, bool] | None = None,
    ) -> None:
        """checked: compare the log-probabilities with the model's own logits. attention: the kernel to try with this
        model; if it does not work, sdpa or padding takes its place. named: true if the recipe names the kernel; then
        varlen or flex raises ValueError if it does not work. device: where the trainer will compute; the model may
        still be on the host. decided: the `decisions` of another rank; nothing is tried.
        """
        super().__init__()
        self.model = model
        hidden_states = hidden_states_of(model)
        self.head = head_of(model)
        if checked:
            check_head(model, self.head, hidden_states)
        kernel, chooses = decided or (None, None)
        self.last_mlp = LastMlp(model, chooses)
        self.attention = kernel or _working_kernel(model, attention, named, device)
        self.packed = self.attention != "padded"
        if self.packed:
            model.set_attn_implementation(ATTENTIONS[self.attention])  # type: ignore[operator]

    @property
    def decisions(self) -> tuple[str, bool]:
        """Decisions that are equal on all ranks: the kernel, and whether the last MLP runs only on chosen tokens."""
        return self.attention, self.last_mlp.is_on

    def forward(
        self, micro: MicroBatch, temperature: float, with_entropy: bool, half: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of the micro-batch's trained tokens, float32 [trained] with a graph, and their entropies
        [trained] in nats, or None without `with_entropy`.

        Natural log, of the distribution at `temperature`. half: matrix products run in bfloat16, the head's too.
        """
        if micro.layout is not None:
            micro.layout.activate()
        base = self.model.base_model
        with self.last_mlp.only(micro.predictors), torch.autocast(micro.ids.device.type, dtype=torch.bfloat16, enabled=half):
            states = base(input_ids=micro.ids, position_ids=micro.position_ids, use_cache=False).last_hidden_state
        picked = states.reshape(-1, states.shape[-1]).index_select(0, micro.predictors)
        if half:
            picked = picked.bfloat16()
        # Every pass reads the head's weight from the model: while a sharded head is gathered, its weight is a
        # different tensor.
        layer = self.model.get_output_embeddings()  # type: ignore[operator]
        head = Head(layer.weight, getattr(layer, "bias", None), self.head.scale, self.head.softcap)
        return chunked_logprobs(picked, head, micro.targets, temperature=temperature, with_entropy=with_entropy)

    def checkpoint_layers(self) -> None:
        """Turns on activation checkpointing: a layer's activations are computed again in the backward pass.

        Raises ValueError if the architecture has no layer that supports it.
        """
        self.last_mlp.remove()
        self.model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        layers = [module for module in self.model.modules() if isinstance(module, GradientCheckpointingLayer)]
        if not layers:
            raise ValueError(f"no layer of {type(self.model).__name__} supports activation checkpointing: set train.checkpointing to false")
        for layer in layers:
            # transformers recomputes activations only in a layer whose `training` is true. Only the layer's own flag
            # is set: its submodules stay in evaluation mode, so dropout stays off.
            layer.training = True


    def compile_layers(self) -> None:
        """Compiles each layer with torch.compile, for sequences of any length, without packed attention. Raises
        ValueError if the architecture has no layer that transformers marks as one.
        """
        layers = [module for module in self.model.modules() if isinstance(module, GradientCheckpointingLayer)]
        if not layers:
            raise ValueError(f"{type(self.model).__name__} has no layer that transformers marks as one (GradientCheckpointingLayer), so none can be compiled: set train.compile to false")
        self.last_mlp.remove()
        for layer in layers:
            # In place: parameters keep their names. Activation checkpointing stays outside of the compiled part.
            layer.compile(dynamic=True)


def _working_kernel(model: nn.Module, asked: str, named: bool, device: torch.device | None) -> str:
    """Returns `asked` if that kernel works with this model, else `sdpa` if that works, else `padded`. Raises ValueError
    if the recipe names varlen or flex (`named`) and it does not work.
    """
    name = type(model).__name__
    is_packed = can_pack(model)
    if is_packed and (asked == "sdpa" or kernel_works(asked, device or next(model.parameters()).device, model.config.get_text_config())):
        return asked
    if named and asked != "sdpa":
        raise ValueError(f"the kernel {asked} does not compute the attention of {name} here: set train.attention to auto")
    if is_packed:
        logger.warning("the attention kernel %s does not work with %s here: sdpa is used", asked, name)
    return "sdpa" if is_packed else "padded"


@torch.no_grad()
def can_pack(model: nn.Module) -> bool:
    """True if sequences laid end to end get the same hidden states as each gets alone, compared on three short
    sequences, with the kernel sdpa.
    """
    base, device = model.base_model, next(model.parameters()).device
    vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    rows = [(torch.arange(n, device=device) * 7919 + n) % vocabulary for n in (6, 5, 2)]
    alone = torch.cat([base(input_ids=row[None], use_cache=False).last_hidden_state[0] for row in rows])  # type: ignore[operator]
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(ATTENTIONS["sdpa"])  # type: ignore[operator]
        layout_of([len(row) for row in rows], device).activate()
        position_ids = torch.cat([torch.arange(len(row), device=device) for row in rows])[None]
        packed = base(input_ids=torch.cat(rows)[None], position_ids=position_ids, use_cache=False).last_hidden_state[0]  # type: ignore[operator]
    except (UnsupportedAttention, ValueError, RuntimeError, TypeError):
        return False
    finally:
        model.set_attn_implementation(before)  # type: ignore[operator]
    tolerance = 1e-4 if alone.dtype == torch.float32 else 5e-2
    return torch.allclose(packed, alone, atol=tolerance * (1.0 + alone.abs().max().item()))
