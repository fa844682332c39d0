"""Precision: `auto` is bfloat16 on a GPU and float32 on a CPU, and TF32 is for GPUs alone."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_models import tiny_model_dir
from troupe_policy.engine.loaded_model import load_model
from troupe_policy.model.precision import allow_tf32, resolved_dtype
from troupe_policy.trainer.trainer import Trainer


def test_auto_is_bfloat16_on_a_gpu_and_float32_on_a_cpu_and_a_name_means_itself() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 1)
    assert [resolved_dtype("auto", device) for device in (cpu, gpu)] == ["float32", "bfloat16"]
    assert [resolved_dtype(name, gpu) for name in ("float32", "bfloat16")] == ["float32", "bfloat16"]


def test_a_trainer_and_an_engine_say_what_auto_came_to(tmp_path: Path) -> None:
    directory = tiny_model_dir(tmp_path / "model")
    made = {"seed": 0, "lora": None, "checkpointing": False}
    trainer = Trainer(directory, "cpu", "auto", published_dtype="auto", **made)
    assert (trainer.dtype, trainer.published_dtype) == ("float32", "float32")
    half = Trainer(directory, "cpu", "bfloat16", published_dtype="auto", **made)
    assert (half.dtype, half.published_dtype) == ("bfloat16", "bfloat16")
    assert load_model(directory, "cpu", "auto").dtype == torch.float32


def test_tf32_is_left_off_on_a_cpu_and_turned_on_for_a_gpu() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        allow_tf32(torch.device("cpu"))
        assert torch.get_float32_matmul_precision() == "highest"
        allow_tf32(torch.device("cuda"))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
