"""Tensors of a safetensors file as views of the mapped file: the same values, and no memory that stays."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from troupe_policy.model.mapped_tensors import mapped_tensors


def test_every_dtype_and_shape_has_the_values_that_safetensors_reads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.int32, torch.uint8, torch.bool]
    shapes = [(), (0,), (3,), (2, 0), (3, 5), (2, 3, 4)]
    given = {f"{kind}{shape}": (torch.rand(shape) * 9).to(kind) for kind in kinds for shape in shapes}
    file = tmp_path / "a.safetensors"
    save_file(given, file, metadata={"format": "pt"})
    read, expected = mapped_tensors(file), load_file(file)
    assert read.keys() == expected.keys()
    for name, tensor in read.items():
        assert (tensor.dtype, tensor.shape) == (expected[name].dtype, expected[name].shape)
        assert tensor.view(torch.uint8).equal(expected[name].view(torch.uint8)) if tensor.dim() else tensor.equal(expected[name])


def test_tensors_that_are_not_aligned_are_read_too(tmp_path: Path) -> None:
    header = {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}}
    text = json.dumps(header).encode()
    data = b"\x07" + torch.tensor([2.5]).numpy().tobytes()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    read = mapped_tensors(tmp_path / "a.safetensors")
    assert read["a"].tolist() == [7] and read["b"].tolist() == [2.5]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_file({"a": torch.zeros(8)}, file)
    content = file.read_bytes()
    for damaged in (content[:-4], content[:20], b"", b"\xff" * 64):
        file.write_bytes(damaged)
        with pytest.raises((SafetensorError, ValueError, OSError)):
            mapped_tensors(file)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_a_file_again_and_again_keeps_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_file({f"t{n}": torch.zeros(16) for n in range(400)}, file)
    target = torch.empty(16)

    def read(times: int) -> int:
        for _ in range(times):
            for tensor in mapped_tensors(file).values():
                target.copy_(tensor)
        gc.collect()
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1])

    before = read(30)
    # safe_open's torch tensors would keep 64 bytes each: 2,500 KiB.
    assert read(100) - before < 600
