"""The measurement that the memory estimate is held against: bytes at the peak of a step, as it is in training."""

from __future__ import annotations

import pytest
import torch
from measure.allocated import most_allocated
from torch.utils._python_dispatch import TorchDispatchMode

WORDS, WIDTH = 20_000, 64


class _Head(torch.autograd.Function):
    """A head whose weight is the embedding's; its gradients are written out, as in model/logprobs.py."""

    @staticmethod
    def forward(ctx, hidden, weight):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(hidden, weight)
        return hidden.sum()

    @staticmethod
    def backward(ctx, _grad):  # type: ignore[no-untyped-def]
        hidden, weight = ctx.saved_tensors
        return torch.ones_like(hidden), torch.zeros_like(weight)


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return function(*args, **(kwargs or {}))


def step() -> None:
    embedding = torch.nn.Embedding(WORDS, WIDTH)
    _Head.apply(embedding(torch.arange(10)), embedding.weight).backward()


def under_a_mode() -> None:
    with _Mode():
        step()


# The weight, its gradient by the head and that by the embedding; a dispatch mode keeps autograd from adding them in
# place.
@pytest.mark.parametrize(("measured", "tensors"), [(step, 3), (under_a_mode, 4)])
def test_the_peak_has_the_gradients_of_tied_weights_as_training_adds_them(measured, tensors) -> None:
    assert most_allocated(measured) / (WORDS * WIDTH * 4) == pytest.approx(tensors, abs=0.01)
