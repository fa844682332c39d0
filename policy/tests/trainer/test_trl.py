"""Our losses and gradients against TRL's on the same model and batch, for each loss that TRL has, within 1e-5."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import random_sequences, tiny_model, tiny_model_dir
from trainer_support import Trainer, grpo_options
from troupe_policy.trainer.grpo_step import grpo_micro
from troupe_policy.trainer.losses.loss_norm import sequence_denominators
from troupe_policy.trainer.batch.micro_batch import Batch
from troupe_policy.trainer.trainer import TrainSequence

trl = pytest.importorskip("trl", reason="TRL is installed with requirements-test.txt")
torch.set_num_threads(1)

PROMPT, BUDGET = 2, 48
BASE = grpo_options(learning_rate=1e-3, correction="none", max_grad_norm=0.0, micro_batch_tokens=90, clip_high=0.2)

# our options, and the equivalent options of TRL
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_norm": "sequences"}, {"loss_type": "grpo"}),
    "dapo": ({"clip_high": 0.28}, {"loss_type": "dapo", "epsilon_high": 0.28}),
    "token mean of the batch": ({"clip_high": 0.28}, {"loss_type": "bnpo", "epsilon_high": 0.28}),
    "dr-grpo": ({"loss_norm": "constant", "constant_tokens": BUDGET}, {"loss_type": "dr_grpo"}),
    "gspo": (
        {"objective": "gspo", "loss_norm": "sequences", "clip_low": 3e-4, "clip_high": 4e-4},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    ),
    "gspo in a wide band": (
        {"objective": "gspo", "loss_norm": "sequences"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    ),
    "cispo": ({"objective": "cispo", "clip_low": 1.0, "clip_high": 0.3}, {"loss_type": "cispo", "epsilon_high": 1.3}),
    "grpo with a KL": (
        {"loss_norm": "sequences", "kl_coef": 0.04},
        {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
    ),
    "grpo with an unbiased KL": (
        {"loss_norm": "sequences", "kl_coef": 0.04, "kl_estimator": "k3-unbiased"},
        {"loss_type": "grpo", "beta": 0.04},
    ),
    "dapo with truncated importance weights": (
        {"correction": "truncated", "correction_high": 1.2},
        {"loss_type": "dapo", "vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 1.2},
    ),
    "dapo with masked importance weights": (
        {"correction": "masked", "correction_low": 0.8, "correction_high": 1.2},
        {
            "loss_type": "dapo", "vllm_importance_sampling_mode": "token_mask",
            "vllm_importance_sampling_clip_min": 0.8, "vllm_importance_sampling_clip_max": 1.2,
        },
    ),
    "cispo with the engine's logprobs as the old policy": (
        {"objective": "cispo", "clip_low": 1.0, "clip_high": 0.3, "correction": "engine-logprobs"},
        {"loss_type": "cispo", "epsilon_high": 1.3},
    ),
    "grpo with the engine's logprobs as the old policy": (
        {"loss_norm": "sequences", "correction": "engine-logprobs"}, {"loss_type": "grpo"},
    ),
}


def batch() -> list[TrainSequence]:
    """Batch whose first PROMPT tokens are the prompt; its log-probabilities stand for the old policy's, near the model's
    own.
    """
    return random_sequences(9, seed=3)


def near(sequences: list[TrainSequence], model: torch.nn.Module, seed: int) -> list[np.ndarray]:
    """Log-probabilities per sequence, float32 [n]: the model's own with noise, so that some ratios are clipped and
    others not.
    """
    draw = np.random.default_rng(seed)
    found = []
    for s in sequences:
        ids = torch.tensor(s.tokens.astype(np.int64))[None]
        with torch.no_grad():
            table = torch.log_softmax(model(input_ids=ids).logits[0], -1)
        own = table[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy()
        found.append(np.concatenate([[0.0], own + draw.normal(size=len(own)) * 0.25]).astype(np.float32))
    return found


def padded(rows: list[np.ndarray], kind: torch.dtype) -> torch.Tensor:
    """Part of each row after the prompt, padded on the right: [rows, longest]."""
    longest = max(len(row) for row in rows) - PROMPT
    table = torch.zeros(len(rows), longest, dtype=kind)
    for at, row in enumerate(rows):
        table[at, : len(row) - PROMPT] = torch.from_numpy(np.asarray(row[PROMPT:])).to(kind)
    return table


def theirs(directory: Path, sequences, old, reference, engine, changes) -> tuple[float, dict[str, torch.Tensor]]:
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(97)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w2", eos_token="w1")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    given = {"epsilon": 0.2, "epsilon_high": 0.2, **changes}
    args = trl.GRPOConfig(
        output_dir=str(directory / "trl"), use_cpu=True, bf16=False, report_to=[], max_completion_length=BUDGET,
        per_device_train_batch_size=9, num_generations=9, scale_rewards="none", gradient_checkpointing=False,
        **given,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=args,
        # TRL requires a data set but never samples from this one; the fingerprint saves hashing it.
        train_dataset=Dataset(InMemoryTable.from_pylist([{"prompt": "w5 w6"}] * 9), fingerprint="prompts"),
        processing_class=tokenizer,
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    mask = padded([s.mask for s in sequences], torch.long)
    inputs = {
        "prompt_ids": torch.stack([torch.from_numpy(s.tokens[:PROMPT].astype(np.int64)) for s in sequences]),
        "prompt_mask": torch.ones(len(sequences), PROMPT, dtype=torch.long),
        "completion_ids": padded([s.tokens for s in sequences], torch.long),
        "completion_mask": padded([np.ones(len(s.tokens)) for s in sequences], torch.long),
        "tool_mask": mask,
        "advantages": torch.tensor([s.advantage for s in sequences], dtype=torch.float32),
        "old_per_token_logps": padded(old, torch.float32),
        "ref_per_token_logps": padded(reference, torch.float32),
        "num_items_in_batch": mask.sum(),
    }
    if engine is not None:
        trainer.use_vllm, trainer.vllm_importance_sampling_correction = True, True
        ratio = torch.exp(padded(old, torch.float32) - padded(engine, torch.float32))
        low, high = args.vllm_importance_sampling_clip_min, args.vllm_importance_sampling_clip_max
        if args.vllm_importance_sampling_mode == "token_mask":
            inputs["importance_sampling_ratio"] = ratio.masked_fill((ratio < low) | (ratio > high), value=0.0)
        else:
            inputs["importance_sampling_ratio"] = ratio.clamp(min=low, max=high)
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def ours(directory: Path, sequences, old, reference, engine, options) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient through the trainer's own micro-batches, with given old_logp and reference_logp."""
    trainer = Trainer(directory)
    masks = [s.mask.astype(bool) for s in sequences]
    counts = [int(mask.sum()) for mask in masks]
    denominators = sequence_denominators(counts, [0] * 9, options.loss_norm, options.constant_tokens)

    def micros(rows):
        tokens, advantages = [s.tokens for s in sequences], [s.advantage for s in sequences]
        return trainer.micro_batches(Batch(tokens, masks, advantages, rows, denominators), options.micro_batch_tokens)

    loss = 0.0
    others = [micros(rows if rows is not None else old) for rows in (reference, engine)]
    for micro, refers, engines in zip(micros(old), *others, strict=True):
        micro.old_logp = None if options.correction == "engine-logprobs" else micro.engine_logp
        micro.engine_logp = engines.engine_logp
        micro.reference_logp = refers.engine_logp if options.kl_coef > 0 else None
        loss += grpo_micro(trainer, micro, options, dict.fromkeys(("clipped",), 0.0), first=False)
    return loss, {name: p.grad for name, p in trainer.parameters.items()}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(name: str, tmp_path: Path) -> None:
    mine, their_changes = CASES[name]
    directory = tiny_model_dir(tmp_path / "m", seed=5)
    sequences, model = batch(), tiny_model(seed=5)
    old, reference = near(sequences, model, 1), near(sequences, model, 2)
    options = dataclasses.replace(BASE, **mine)
    by_engine = options.correction == "engine-logprobs"
    engine = None if options.correction == "none" else near(sequences, model, 4)
    # Where the engine's log-probabilities are π_old, TRL gets them as such and has no importance weight.
    given = (engine, reference, None) if by_engine else (old, reference, engine)
    want_loss, want = theirs(directory, sequences, *given, their_changes)
    loss, got = ours(directory, sequences, old, reference, engine, options)
    assert loss == pytest.approx(want_loss, abs=1e-5)
    assert want_loss != 0.0
    largest = max(gradient.abs().max().item() for gradient in want.values())
    assert largest > 1e-4
    for parameter, gradient in want.items():
        assert torch.allclose(got[parameter], gradient, atol=1e-5, rtol=1e-4), parameter
