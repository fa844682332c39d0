"""Test cases that a trainer of one rank and a trainer of two ranks both compute."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from tiny_models import random_sequences
from trainer_support import Trainer, grpo_options, sft_options
from troupe_policy.trainer.trainer import GrpoOptions, LoraOptions, SftExample
from troupe_policy.trainer.ranks.shards import whole

OPTIONS = grpo_options(learning_rate=1e-3, micro_batch_tokens=64, temperature=0.7, correction_high=1.5, max_grad_norm=0.5)
OTHER = dataclasses.replace(OPTIONS, micro_batch_tokens=1)
SFT = sft_options(learning_rate=1e-3, epochs=2, batch_sequences=7)

# (number of sequences, options, arguments of the trainer). With three sequences one of two ranks gets fewer, with one
# it gets none.
CASES: dict[str, tuple[int, GrpoOptions, dict[str, Any]]] = {
    "token mean": (11, OPTIONS, {}),
    "one sequence": (1, OPTIONS, {}),
    "uneven": (3, OTHER, {}),
    "gspo": (6, dataclasses.replace(OPTIONS, objective="gspo", loss_norm="sequences", inner_steps=2), {}),
    "geometric mask": (
        7,
        dataclasses.replace(OPTIONS, correction="geometric-mask", correction_low=0.2, correction_high=1.0, inner_steps=2),
        {},
    ),
    "mini-batches": (11, dataclasses.replace(OPTIONS, mini_batches=2, inner_steps=2), {}),
    "reference": (6, dataclasses.replace(OPTIONS, kl_coef=0.1, inner_steps=2), {}),
    "checkpointing": (11, OPTIONS, {"checkpointing": True}),
    "reduced once": (11, OPTIONS, {"gradient_reduction": "update"}),
    "lora": (6, OPTIONS, {"lora": LoraOptions(4, 8.0, ("all-linear",))}),
}


def examples_of(count: int) -> list[SftExample]:
    return [SftExample(s.tokens % 13, s.mask) for s in random_sequences(count, seed=8)]


def after_resume(trainer: Trainer) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """Metrics of one more step, and the trained weights after it."""
    metrics = trainer.step(random_sequences(5, seed=9), OPTIONS)
    return metrics, {name: whole(p.detach()).clone() for name, p in trainer.parameters.items()}
