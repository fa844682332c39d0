"""Trainer and options for tests: the package itself has no defaults, so these tests set their own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file as numpy_save_file
from safetensors.torch import save_file
from troupe_policy.model.checkpoint import weights_digest

import troupe_policy.trainer.trainer as package
from troupe_policy.trainer import checkpoint_writer
from troupe_policy.trainer.trainer import GrpoOptions, SftExample, SftOptions, TrainSequence


class Trainer(package.Trainer):
    """Loads a trainer in float32 on the CPU, with all weights trained, unless a test says otherwise."""

    def __init__(self, model_dir: str | Path, **changes: Any) -> None:
        super().__init__(
            model_dir, **{"device": "cpu", "dtype": "float32", "seed": 0, "lora": None, "checkpointing": False, **changes}
        )


def save_format_1(trainer: package.Trainer, directory: Path, optimizer: str = "optimizer/state.safetensors") -> None:
    """Writes a checkpoint as Troupe did before its state lay in shards: whole tensors, a manifest of format 1."""
    trainer.model.save_pretrained(directory)
    (directory / optimizer).parent.mkdir(exist_ok=True)
    digest, size = weights_digest(directory)
    save_file(dict(trainer.optimizer.named_state()), directory / optimizer)
    manifest = {"format": 1, "digest": digest, "bytes": size, "optimizer": {"file": optimizer, "updates": trainer.optimizer.updates}}
    if trainer.reference.is_taken:
        (directory / "reference").mkdir()
        save_file(trainer.reference.sharded(), directory / "reference/weights.safetensors")
        manifest["reference"] = {"file": "reference/weights.safetensors"}
    (directory / "manifest.json").write_text(json.dumps(manifest))


def write_examples(directory: Path, given: Sequence[SftExample], per_file: int) -> str:
    """Writes demonstrations as the learner does; returns their digest."""
    directory.mkdir()
    files = {}
    for at in range(0, len(given), per_file):
        part, name = given[at : at + per_file], f"examples-{at:05}.safetensors"
        numpy_save_file(
            {
                "tokens": np.concatenate([one.tokens for one in part]).astype(np.int32),
                "mask": np.concatenate([one.mask for one in part]).astype(np.uint8),
                "ends": np.cumsum([len(one.tokens) for one in part]).astype(np.int64),
            },
            directory / name,
        )
        files[name] = {"sha256": hashlib.sha256((directory / name).read_bytes()).hexdigest()}
    text = json.dumps({"files": files})
    (directory / "manifest.json").write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


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
            "max_grad_norm": 1.0,
            "objective": "clip",
            "dual_clip": 0.0,
            "constant_tokens": 0,
            "kl_coef": 0.0,
            "kl_estimator": "k3",
            "warmup_updates": 0,
            "correction": "truncated",
            "correction_low": 0.0,
            "correction_high": 2.0,
            "mini_batches": 1,
            "mini_batch_unit": "groups",
            "mini_batch_seed": 0,
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


def sampled_by(model: torch.nn.Module, sequences: list[TrainSequence], *, noise: float = 0.0) -> list[TrainSequence]:
    """Sets the sequences' engine_logp to the model's own log-probabilities plus normal noise with standard deviation
    `noise`."""
    draw = np.random.default_rng(1)
    found = []
    for s in sequences:
        ids = torch.tensor(s.tokens.astype(np.int64))[None]
        with torch.no_grad():
            table = torch.log_softmax(model(input_ids=ids).logits[0], -1)
        own = table[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy()
        logp = np.concatenate([[0.0], own + draw.normal(size=len(own)) * noise])
        found.append(dataclasses.replace(s, engine_logp=logp.astype(np.float32)))
    return found


def gated_writer(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Makes the checkpoint writer wait. Returns two events: one lets it write, the other is set while it waits."""
    gate, writing = threading.Event(), threading.Event()
    write = checkpoint_writer.write_shards

    def slow(*given: object) -> object:
        writing.set()
        assert gate.wait(60)
        return write(*given)

    monkeypatch.setattr(checkpoint_writer, "write_shards", slow)
    return gate, writing
