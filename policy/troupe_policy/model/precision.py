"""Precision of matrix products on a device.

In: the dtype that a recipe asks for, a device. Out: the dtype that is used, and torch's setting for float32 products.
Invariant: a CPU computes float32 products in float32.
"""

from __future__ import annotations

import torch


def resolved_dtype(name: str, device: torch.device) -> str:
    """Name of the dtype that `name` means on this device: `auto` is bfloat16 on a GPU and float32 on a CPU."""
    if name != "auto":
        return name
    return "float32" if device.type == "cpu" else "bfloat16"


def allow_tf32(device: torch.device) -> None:
    """Lets a GPU multiply float32 matrices in TF32. Call it after a model's checks, because their tolerances need
    products in full float32.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
