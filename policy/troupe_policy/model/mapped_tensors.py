"""Maps the tensors of a safetensors file into memory.

In: a file. Out: its tensors by name, as views of the mapped file (a misaligned tensor is a copy): the system reads a
page when it is used, and the caller must copy a tensor before the file changes. Invariant: nothing stays allocated once
the tensors are gone. safetensors' own reader, `safe_open` of version 0.8.0, is not used for tensors: it leaks about 64
bytes for each one, and an engine loads weights every step.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


def mapped_tensors(file: Path) -> dict[str, Tensor]:
    """Tensors by name. Raises SafetensorError if the file is damaged, ValueError for a dtype that DTYPES lacks."""
    # Checks the header: every tensor lies within the file, and none overlaps another.
    with safe_open(str(file), framework="np") as reader:
        names = set(reader.keys())
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    # Mode c (copy on write), since torch warns about read-only memory. Nobody writes to the tensors.
    content = np.memmap(file, np.uint8, "c")
    return {name: _tensor(file, name, described, content[8 + length :]) for name, described in header.items() if name in names}


def _tensor(file: Path, name: str, described: dict, content: np.ndarray) -> Tensor:
    dtype = DTYPES.get(described["dtype"])
    if dtype is None:
        raise ValueError(f"{name} in {file} has the dtype {described['dtype']}; expected one of {', '.join(DTYPES)}")
    start, end = described["data_offsets"]
    if start == end:
        return torch.empty(described["shape"], dtype=dtype)
    piece = torch.from_numpy(content[start:end])
    if piece.data_ptr() % dtype.itemsize:
        piece = piece.clone()
    return piece.view(dtype).reshape(described["shape"])
