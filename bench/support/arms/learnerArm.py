"""One arm of the learner benchmark: optimizer steps of one batch by one trainer, in its own process.

in   --arm ours|trl|make, a model directory; a line `step` on stdin for each step
out  a JSON line when the arm is ready; then one for each step: seconds, gradient norm, tokens, peak memory. The arm
     `make` only writes the model
The batch is made from a seed, the same in every arm: sequences of a prompt and a response of different lengths, as
GRPO has them, with advantages of both signs. π_old is the policy itself (one inner step). Prompt tokens are not
trained on.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

PROMPT = 32
# SmolLM2-135M's shape, with random weights
MODEL = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "max_position_embeddings": 2048, "tie_word_embeddings": True, "rope_theta": 100000.0,
}  # fmt: skip


def batch(sequences: int, seed: int = 7) -> list[tuple[np.ndarray, float]]:
    """The batch's sequences as (tokens [n] int32, advantage); responses have 48 to 224 tokens."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(48, 225, size=sequences)
    return [
        (draw.integers(0, MODEL["vocab_size"], PROMPT + n).astype(np.int32), float(a))
        for n, a in zip(lengths, draw.normal(size=sequences), strict=True)
    ]


def make(directory: str) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**MODEL)).save_pretrained(directory)


def memory(field: str) -> int:
    """Memory of this process in bytes: field VmHWM is its peak, VmRSS its current size."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def ours(given: argparse.Namespace):
    from measure.batches import step_options
    from troupe_policy.trainer.trainer import Trainer, TrainSequence

    imported = memory("VmRSS")
    trainer = Trainer(given.model, "cpu", "float32", 0, lora=None, checkpointing=given.checkpointing)
    options = step_options(16_384)
    sequences = []
    for at, (tokens, advantage) in enumerate(batch(given.sequences)):
        mask = np.ones(len(tokens), dtype=np.uint8)
        mask[:PROMPT] = 0
        sequences.append(TrainSequence(f"g/{at}", tokens, mask, np.zeros(len(tokens), np.float32), advantage, 0))
    return imported, lambda: trainer.step(sequences, options)["gradNorm"]


def trl_arm(given: argparse.Namespace):
    import trl
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(MODEL["vocab_size"])}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w2", eos_token="w1")
    imported = memory("VmRSS")
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    given_batch = batch(given.sequences)
    args = trl.GRPOConfig(
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, report_to=[], loss_type="dapo", epsilon_high=0.28, beta=0.0,
        per_device_train_batch_size=given.sequences, num_generations=given.sequences, max_completion_length=256,
        gradient_checkpointing=given.checkpointing, learning_rate=1e-6, max_grad_norm=1.0, lr_scheduler_type="constant",
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=args, processing_class=tokenizer,
        train_dataset=Dataset(InMemoryTable.from_pylist([{"prompt": "w5"}] * given.sequences), fingerprint="prompts"),
    )  # fmt: skip
    if given.checkpointing:  # these calls are what TRL's train() does before its first step
        trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    trainer.current_gradient_accumulation_steps = 1
    optimizer = trainer.create_optimizer()
    longest = max(len(tokens) for tokens, _ in given_batch) - PROMPT
    completions = torch.zeros(len(given_batch), longest, dtype=torch.long)
    mask = torch.zeros_like(completions)
    for at, (tokens, _) in enumerate(given_batch):
        completions[at, : len(tokens) - PROMPT] = torch.from_numpy(tokens[PROMPT:].astype(np.int64))
        mask[at, : len(tokens) - PROMPT] = 1
    prompts = torch.stack([torch.from_numpy(tokens[:PROMPT].astype(np.int64)) for tokens, _ in given_batch])
    inputs = {
        "prompt_ids": prompts, "prompt_mask": torch.ones_like(prompts), "completion_ids": completions,
        "completion_mask": mask, "advantages": torch.tensor([a for _, a in given_batch], dtype=torch.float32),
        "num_items_in_batch": mask.sum(),
    }  # fmt: skip

    def step() -> float:
        trainer.model.train()
        loss = trainer._compute_loss(trainer.model, inputs)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm.item()

    return imported, step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--arm", choices=("ours", "trl", "make"), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.arm == "make":
        make(given.model)
        return
    imported, step = ours(given) if given.arm == "ours" else trl_arm(given)
    tokens = sum(len(row) for row, _ in batch(given.sequences))
    print(json.dumps({"ready": True}), flush=True)
    # the parent sends a line for each step, so that the arms alternate
    while input() == "step":
        started, worked = time.perf_counter(), time.process_time()
        norm = step()
        seconds, cpu = time.perf_counter() - started, time.process_time() - worked
        grown = memory("VmHWM") - imported
        print(json.dumps({"seconds": seconds, "cpuSeconds": cpu, "gradNorm": norm, "tokens": tokens, "peakBytes": grown}), flush=True)


if __name__ == "__main__":
    main()
