"""Checkpoints: directories that `transformers` loads, either complete or absent.

In: a model, its optimizer's state, tokenizer files. Out: a directory with safetensors weights, config, tokenizer
files and manifest.json; if present also optimizer/state.safetensors and files below adapter/ and reference/.
Invariants: the directory is published atomically (published_directory.py). Loading a directory with a manifest
verifies the digest of the weights; other files have no digest. State that was saved and loaded is the same, bit for
bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from .published_directory import published_directory

# Progress bars are off: they would appear between a run's own lines.
transformers_logging.disable_progress_bar()

MANIFEST = "manifest.json"
# The optimizer's state lies in its own folder, since engines load every safetensors file beside the config.
OPTIMIZER = "optimizer/state.safetensors"
CHUNK_BYTES = 4 * 1024 * 1024

# Files for tokenizer and generation, copied unchanged from the directory that the model was loaded from.
COMPANIONS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)


class CheckpointError(RuntimeError):
    """The checkpoint is missing, damaged or belongs to another model. `code` is for programs: trainer.no_checkpoint, …
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def weight_files(directory: Path) -> list[Path]:
    """Paths of the model's safetensors files, sorted by name, without the optimizer's, which earlier versions put beside
    them.
    """
    return sorted(file for file in directory.glob("*.safetensors") if file.name != "optimizer.safetensors")


def weights_digest(directory: Path) -> tuple[str, int]:
    """(sha256 in hex over the bytes of the weight files in the order of their names, their total size in bytes)."""
    digest = hashlib.sha256()
    size = 0
    for file in weight_files(directory):
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    return digest.hexdigest(), size


def read_companions(directory: Path) -> dict[str, bytes]:
    """Tokenizer and generation files by name. They are read at start, since the directory may be gone when a checkpoint
    is written.
    """
    return {name: (directory / name).read_bytes() for name in COMPANIONS if (directory / name).is_file()}


def save(
    directory: str | Path,
    model: nn.Module,
    companions: Mapping[str, bytes],
    optimizer: Mapping[str, Tensor] | None,
    counters: Mapping[str, int],
    *,
    weights: Mapping[str, Tensor] | None = None,
    parts: Mapping[str, Mapping[str, Tensor] | Path] | None = None,
    described: Mapping[str, object] | None = None,
) -> tuple[str, int]:
    """Writes a checkpoint and returns (digest, size in bytes) of its weights, as `weights_digest` computes them.

    companions: files by name, copied unchanged. optimizer: tensors by name, or None to leave it out. counters: numbers in the
    manifest that belong to the optimizer's state. weights: tensors to write instead of the model's own, under its names.
    parts: by file name, tensors by name, or the file of an earlier checkpoint that holds them already and is linked instead of
    copied; each file lies in a folder, since engines load every safetensors file beside the config.
    described: further entries of the manifest.
    """
    target = Path(directory)
    with published_directory(target) as temporary:
        own = {} if weights is None else {"state_dict": dict(weights)}
        # These files are written after save_pretrained: a user's own files replace those derived from the config.
        model.save_pretrained(temporary, max_shard_size="4GB", **own)  # type: ignore[operator]
        for name, content in companions.items():
            _parent_made(temporary / name).write_bytes(content)
        if optimizer is not None:
            save_file(dict(optimizer), _parent_made(temporary / OPTIMIZER))
        for name, part in (parts or {}).items():
            _write_part(part, _parent_made(temporary / name))
        digest, size = weights_digest(temporary)
        manifest = {"format": 1, "digest": digest, "bytes": size, "optimizer": None, **(described or {})}
        if optimizer is not None:
            manifest["optimizer"] = {"file": OPTIMIZER, **counters}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return digest, size


def _parent_made(file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    return file


def _write_part(part: Mapping[str, Tensor] | Path, file: Path) -> None:
    if not isinstance(part, Path):
        save_file(dict(part), file)
        return
    try:
        os.link(part, file)
    except OSError:
        shutil.copyfile(part, file)


def read_manifest(directory: str | Path) -> dict | None:
    """Reads the manifest, or None for a model directory without one. Verifies the weights' digest. Raises
    CheckpointError.
    """
    path = Path(directory)
    if not path.is_dir():
        raise CheckpointError("trainer.no_checkpoint", f"the checkpoint directory {path} does not exist")
    if not (path / MANIFEST).is_file():
        return None
    manifest = json.loads((path / MANIFEST).read_text())
    digest, size = weights_digest(path)
    if digest != manifest["digest"]:
        raise CheckpointError(
            "trainer.checkpoint_corrupt",
            f"the weights in {path} ({size} bytes) have the digest {digest[:12]}…, but the manifest says "
            f"{manifest['digest'][:12]}…: copy the checkpoint again, or use another one",
        )
    return manifest


def read_weights(directory: str | Path, model: nn.Module) -> dict[str, Tensor]:
    """Reads the weights of `directory` by the names that `model` has, in float32. Raises CheckpointError if they do not
    fit `model`.
    """
    try:
        source = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError("trainer.no_checkpoint", f"no model could be read from {directory}: {error}") from error
    # The names include duplicates: a head that is tied in one of the two models must be tied in the other.
    given = dict(source.named_parameters(remove_duplicate=False)) | dict(source.named_buffers())
    wanted = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    check_shapes(directory, given, wanted)
    return {name: tensor.detach() for name, tensor in given.items()}


def check_shapes(directory: str | Path, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raises CheckpointError trainer.shape_mismatch, naming up to three tensors that do not fit."""
    problems = [f"{name} is missing" for name in wanted if name not in given]
    problems += [f"{name} is not in this model" for name in given if name not in wanted]
    problems += [
        f"{name} is {list(given[name].shape)} there and {list(tensor.shape)} here"
        for name, tensor in wanted.items()
        if name in given and given[name].shape != tensor.shape
    ]
    if problems:
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise CheckpointError("trainer.shape_mismatch", f"the checkpoint in {directory} belongs to another model: {shown}")


def tensors_in(file: Path) -> Iterator[tuple[str, Tensor]]:
    """Reads (name, tensor) one at a time, in the order of the names."""
    with safe_open(str(file), framework="pt") as reader:
        for name in sorted(reader.keys()):
            yield name, reader.get_tensor(name)
