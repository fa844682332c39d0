"""Trainer and options for tests: the package itself has no defaults, so these tests set their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import troupe_policy.trainer.trainer as package
from troupe_policy.trainer.trainer import GrpoOptions, SftOptions


class Trainer(package.Trainer):
    """Loads a trainer in float32 on the CPU, with all weights trained, unless a test says otherwise."""

    def __init__(self, model_dir: str | Path, **changes: Any) -> None:
        super().__init__(
            model_dir, **{"device": "cpu", "dtype": "float32", "seed": 0, "lora": None, "checkpointing": False, **changes}
        )


def grpo_options(**changes: Any) -> GrpoOptions:
    return GrpoOptions(
        **{
            "learning_rate": 1e-3,
            "clip_low": 0.2,
            "clip_high": 0.28,
            "loss_norm": "batch-tokens",
            "inner_steps": 1,
            "micro_batch_tokens": 8192,
            "temperature": 1.0,
            "tis_cap": 2.0,
            "max_grad_norm": 1.0,
            "objective": "clip",
            "dual_clip": 0.0,
            "constant_tokens": 0,
            "kl_coef": 0.0,
            "kl_estimator": "k3",
            "icepop_low": 0.0,
            "icepop_high": 0.0,
            "warmup_updates": 0,
            **changes,
        }
    )


def sft_options(**changes: Any) -> SftOptions:
    return SftOptions(
        **{
            "learning_rate": 1e-3,
            "epochs": 1,
            "batch_sequences": 32,
            "warmup_share": 0.04,
            "max_grad_norm": 1.0,
            "seed": 0,
            **changes,
        }
    )
