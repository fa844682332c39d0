"""The last layer's MLP, run only on the tokens whose hidden states are used: those that predict a trained token.

In: a model, and the indices of a micro-batch's predicting tokens. Out: for these tokens the same hidden states; the
last MLP adds nothing to the other tokens, whose last hidden states nobody reads.
Invariant: attention and all earlier layers see every token. A model whose last hidden states would differ, such as one
that mixes tokens after its last MLP, keeps its MLP as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.modeling_layers import GradientCheckpointingLayer


class _Pass(threading.local):
    """The forward pass of this thread. rows: tokens that the MLP runs on; None: all. shape: that of the MLP's input."""

    rows: Tensor | None = None
    shape: torch.Size = torch.Size()


class LastMlp:
    """Owns the hooks of the last layer's `mlp`, which act within `only`. `is_on`: the model has these hooks."""

    def __init__(self, model: nn.Module, decided: bool | None = None) -> None:
        """decided: whether the model gets the hooks, as another rank found. None: it gets them if its hidden states are
        the same with and without the choice of tokens.
        """
        self._pass = _Pass()
        self._hooks: list[RemovableHandle] = []
        layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        mlp = getattr(layers[-1], "mlp", None) if layers else None
        if decided is not False and isinstance(mlp, nn.Module):
            self._hooks = [mlp.register_forward_pre_hook(self._choose), mlp.register_forward_hook(self._spread)]
            if decided is None and not self._agrees(model):
                self.remove()

    @property
    def is_on(self) -> bool:
        return len(self._hooks) > 0

    @contextmanager
    def only(self, rows: Tensor) -> Iterator[None]:
        """Within the block the last layer's MLP runs only on these tokens. rows: int64 [used], indices into the
        flattened tokens of the forward pass.
        """
        self._pass.rows = rows
        try:
            yield
        finally:
            self._pass.rows = None

    def remove(self) -> None:
        """Takes the hooks off: for layers that are compiled or computed again in the backward pass."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _choose(self, mlp: nn.Module, given: tuple) -> tuple | None:
        """Picks the used tokens of the MLP's input: […, tokens, hidden] → [1, used, hidden]."""
        if self._pass.rows is None:
            return None
        self._pass.shape = given[0].shape
        return (given[0].reshape(-1, self._pass.shape[-1]).index_select(0, self._pass.rows)[None], *given[1:])

    def _spread(self, mlp: nn.Module, given: tuple, out: Tensor) -> Tensor:
        """Puts the MLP's output back to its tokens: [1, used, hidden] → […, tokens, hidden], 0 for unused tokens."""
        if self._pass.rows is None:
            return out
        flat = out.new_zeros((self._pass.shape[:-1].numel(), out.shape[-1]))
        return flat.index_copy(0, self._pass.rows, out[0]).view(*self._pass.shape[:-1], out.shape[-1])

    @torch.no_grad()
    def _agrees(self, model: nn.Module) -> bool:
        device = next(model.parameters()).device
        vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
        ids = ((torch.arange(12, device=device) * 7919 + 5) % vocabulary).view(2, 6)
        states = lambda: model.base_model(input_ids=ids, use_cache=False).last_hidden_state.flatten(0, 1)  # type: ignore[operator] # noqa: E731
        whole, rows = states(), torch.tensor([1, 4, 5, 9], device=device)
        try:
            with self.only(rows):
                chosen = states()
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError):
            return False
        expected = whole[rows]
        tolerance = 1e-4 if whole.dtype == torch.float32 else 5e-2
        return torch.allclose(chosen[rows], expected, atol=tolerance * (1.0 + expected.abs().max().item()))
