"""Models and batches of the smoke checks, made from a seed: random weights in the shape of a published model, or tiny."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from troupe_policy.trainer.trainer import TrainSequence

_QWEN = {"model_type": "qwen2", "max_position_embeddings": 32_768, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
SHAPES: dict[str, dict[str, object]] = {
    "tiny": {
        **_QWEN, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 512,
    },
    # Qwen2.5-0.5B and 1.5B
    "0.5b": {
        **_QWEN, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 151_936,
    },
    "1.5b": {
        **_QWEN, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "vocab_size": 151_936,
    },
}  # fmt: skip


def make_model(directory: Path, shape: str) -> Path:
    """Writes a model of this shape, float32, and returns its directory."""
    fields = dict(SHAPES[shape])
    config = AutoConfig.for_model(fields.pop("model_type"), bos_token_id=None, eos_token_id=1, pad_token_id=2, **fields)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(directory)
    return directory


def vocabulary_of(directory: Path) -> int:
    return int(AutoConfig.from_pretrained(directory).vocab_size)


def sequences(directory: Path, lengths: list[int], prompt: int = 16, seed: int = 7) -> list[TrainSequence]:
    """Sequences of these lengths, advantages of both signs; the first `prompt` tokens are not trained on."""
    draw, vocabulary = np.random.default_rng(seed), vocabulary_of(directory)
    made = []
    for at, length in enumerate(lengths):
        mask = np.ones(length, dtype=np.uint8)
        mask[:prompt] = 0
        tokens = draw.integers(3, vocabulary, length).astype(np.int32)
        engine_logp = np.full(length, -np.log(vocabulary), dtype=np.float32)
        made.append(TrainSequence(f"g/{at}", tokens, mask, engine_logp, 1.0 if at % 2 else -1.0, 0))
    return made
