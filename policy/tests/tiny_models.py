"""Small models with random weights for the trainer's tests: a few thousand parameters, made in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from troupe_policy.trainer.trainer import TrainSequence

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "vocab_size": 97,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 2,
}


def tiny_model(seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A causal LM of the tiny config with `changes`, in eval mode, float32."""
    fields = {**LLAMA, **changes}
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def tiny_model_dir(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Saves a tiny model with `changes` in `directory`, in the form that transformers loads."""
    tiny_model(seed, **changes).save_pretrained(directory)
    return directory


def random_sequences(count: int, seed: int, *, vocabulary: int = 97, group_size: int = 4) -> list[TrainSequence]:
    """Sequences of 6 to 40 tokens with prompt and tool tokens masked out, advantages of both signs."""
    draw = np.random.default_rng(seed)
    sequences = []
    for at in range(count):
        length = int(draw.integers(6, 41))
        mask = (draw.random(length) < 0.7).astype(np.uint8)
        mask[:2] = 0
        mask[-1] = 1
        sequences.append(
            TrainSequence(
                trajectory=f"g{at // group_size}/{at % group_size}",
                tokens=draw.integers(0, vocabulary, length).astype(np.int32),
                mask=mask,
                engine_logp=np.where(mask, -4.5 + draw.normal(size=length) * 0.3, 0).astype(np.float32),
                advantage=float(draw.normal()),
                group=at // group_size,
            )
        )
    return sequences
