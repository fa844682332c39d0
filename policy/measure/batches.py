"""Batches of random tokens and the options of a plain GRPO step, for measurements and the GPU smoke run.

In: lengths of sequences, tokens of a micro-batch. Out: sequences for the trainer, options.
Invariant: the options ask for loss, clipping and AdamW alone: one update, no KL, no correction.
"""

from __future__ import annotations

import numpy as np

from troupe_policy.trainer.options import GrpoOptions, TrainSequence

# Prompt tokens of a sequence, which are not trained on.
PROMPT = 8


def sequences(lengths: list[int], vocabulary: int) -> list[TrainSequence]:
    draw = np.random.default_rng(7)
    rows = []
    for at, length in enumerate(lengths):
        mask = np.ones(length, dtype=np.uint8)
        mask[:PROMPT] = 0
        tokens = draw.integers(0, vocabulary, length).astype(np.int32)
        rows.append(TrainSequence(f"g/{at}", tokens, mask, np.zeros(length, np.float32), float(draw.normal()), 0))
    return rows


def step_options(micro_batch_tokens: int) -> GrpoOptions:
    return GrpoOptions(
        learning_rate=1e-6, clip_low=0.2, clip_high=0.28, loss_norm="batch-tokens", inner_steps=1,
        micro_batch_tokens=micro_batch_tokens, temperature=1.0, max_grad_norm=1.0, objective="clip", dual_clip=0.0,
        constant_tokens=0, kl_coef=0.0, kl_estimator="k3", warmup_updates=0, correction="none", correction_low=0.0,
        correction_high=0.0, mini_batches=1, mini_batch_unit="groups", mini_batch_seed=0,
    )  # fmt: skip
