"""Published weights: directories that `transformers` loads, either complete or absent.

In: a model, tokenizer files. Out: a directory with safetensors weights, config, tokenizer files, adapters below
adapter/, and manifest.json with sha256 and size of every other file.
Invariant: the directory is published atomically (published_directory.py). `read_manifest` and manifest.py's
`check_model` verify its files. The trainer's checkpoints are such directories with its state beside the weights
(trainer/saved_state.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from .disk_full import naming_disk_full
from .manifest import CHUNK_BYTES, FORMAT, MANIFEST, CheckpointError, check_files, load_manifest, manifest_text
from .mapped_tensors import mapped_tensors
from .published_directory import published_directory

# Progress bars are off: they would appear between a run's own lines.
transformers_logging.disable_progress_bar()

# File of the optimizer's state in checkpoints of format 1, which are read but no longer written.
OPTIMIZER = "optimizer/state.safetensors"

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


def weight_files(directory: Path) -> list[Path]:
    """Paths of the model's safetensors files, sorted by name, without the optimizer's, which earlier versions put
    beside them.
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
    """Contents of the tokenizer and generation files, by file name. The trainer reads them at start, since the
    directory may be gone when it writes a checkpoint.
    """
    return {name: (directory / name).read_bytes() for name in COMPANIONS if (directory / name).is_file()}


def save_weights(
    directory: str | Path,
    model: nn.Module,
    companions: Mapping[str, bytes],
    *,
    weights: Mapping[str, Tensor] | None = None,
    dtype: str = "float32",
    parts: Mapping[str, Mapping[str, Tensor]] | None = None,
    described: Mapping[str, object] | None = None,
) -> dict:
    """Publishes weights that `transformers` loads, and returns the manifest.

    companions: files by name, copied unchanged. weights: tensors to write instead of the model's own, under its names.
    dtype: name of the floating-point weights' dtype, for the config and the manifest; nothing is converted. parts:
    further tensor files, {file name: {tensor name: tensor}}; each lies in a folder, since engines load every
    safetensors file beside the config. described: further entries of the manifest.
    """
    target = Path(directory)
    with naming_disk_full(target, "the published weights"), published_directory(target) as temporary:
        own = {} if weights is None else {"state_dict": dict(weights)}
        # The companions are written after save_pretrained, so that they replace files of the same name that it makes.
        model.save_pretrained(temporary, max_shard_size="4GB", **own)  # type: ignore[operator]
        _name_dtype(temporary / "config.json", dtype)
        for name, content in companions.items():
            _parent_made(temporary / name).write_bytes(content)
        for name, part in (parts or {}).items():
            save_file(dict(part), _parent_made(temporary / name))
        return write_manifest(temporary, dtype, described)


def write_manifest(directory: Path, dtype: str, described: Mapping[str, object] | None = None) -> dict:
    """Writes manifest.json for the files in `directory`, and returns it. dtype: of the weights. described: further
    entries.
    """
    digest, size, files = _digests(directory)
    manifest = {
        "format": FORMAT, "digest": digest, "bytes": size, "dtype": dtype, "optimizer": None, **(described or {}), "files": files,
    }  # fmt: skip
    (directory / MANIFEST).write_text(manifest_text(manifest))
    return manifest


def _name_dtype(config: Path, dtype: str) -> None:
    """Writes the weights' dtype into the config, where save_pretrained puts the dtype of the model in memory."""
    fields = json.loads(config.read_text())
    if fields.get("dtype", dtype) == dtype:
        return
    config.write_text(json.dumps({**fields, "dtype": dtype}, indent=2, sort_keys=True) + "\n")


def _digests(directory: Path) -> tuple[str, int, dict[str, dict]]:
    """(sha256 in hex of all weight files, their size in bytes, {path below the directory: {"sha256", "bytes"}} of every
    file). The first two are those of weights_digest. Reads each file once.
    """
    weights, size = hashlib.sha256(), 0
    files: dict[str, dict] = {}
    ours = weight_files(directory)
    others = [file for file in sorted(directory.rglob("*")) if file.is_file() and file not in ours]
    for file in [*ours, *others]:
        own = weights if ours == [file] else hashlib.sha256()
        total = 0
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                total += len(chunk)
                own.update(chunk)
                if file in ours and own is not weights:
                    weights.update(chunk)
        size += total if file in ours else 0
        files[file.relative_to(directory).as_posix()] = {"sha256": own.hexdigest(), "bytes": total}
    return weights.hexdigest(), size, dict(sorted(files.items()))


def _parent_made(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def link_or_copy(source: Path, file: Path) -> None:
    """Makes `file` a hard link to `source`, or a copy if no hard link can be made. Also makes its folder."""
    _parent_made(file)
    try:
        os.link(source, file)
    except OSError:
        shutil.copyfile(source, file)


def read_manifest(directory: str | Path, *, expected: str = "", verify: bool = True) -> dict | None:
    """Returns the manifest, or None if the directory has none that Troupe wrote. expected: sha256 in hex that
    manifest.json must have; empty turns that check off. verify: also check every file that the manifest names, or, in
    format 1, which names none, the digest of the weights. Raises CheckpointError if a check fails, the manifest is
    damaged or of a newer format, or the directory does not exist.
    """
    path = Path(directory)
    if not path.is_dir():
        raise CheckpointError("trainer.no_checkpoint", f"the checkpoint directory {path} does not exist")
    manifest = load_manifest(path, expected)
    if manifest is None or not verify:
        return manifest
    if "files" in manifest:
        check_files(path, manifest)
        return manifest
    digest, size = weights_digest(path)
    if digest != manifest["digest"]:
        raise CheckpointError(
            "trainer.checkpoint_corrupt",
            f"the weights in {path} ({size} bytes) have the digest {digest[:12]}…, but the manifest says "
            f"{manifest['digest'][:12]}…: copy the checkpoint again, or use another one",
        )
    return manifest


def read_weights(directory: str | Path, model: nn.Module) -> dict[str, Tensor]:
    """Reads the weights of `directory` by the names that `model` has, in float32. Raises CheckpointError if they
    cannot be read or do not fit `model`. If `model` ties its head to its embedding, both must be equal in the weights.
    """
    try:
        source = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError("trainer.no_checkpoint", f"no model could be read from {directory}: {error}; expected config.json and safetensors files") from error
    # The names include duplicates, so that a head that is tied to the embedding has its own name, as an untied one has.
    given = dict(source.named_parameters(remove_duplicate=False)) | dict(source.named_buffers())
    wanted = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    check_shapes(directory, given, wanted)
    _check_ties(directory, given, wanted)
    return {name: tensor.detach() for name, tensor in given.items()}


def _check_ties(directory: str | Path, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raises CheckpointError trainer.shape_mismatch if `wanted` has one tensor under two names for which `given` has
    different values: loading would keep only one of the two.
    """
    first: dict[int, str] = {}
    for name, tensor in wanted.items():
        other = first.setdefault(id(tensor), name)
        if other != name and not torch.equal(given[name], given[other]):
            raise CheckpointError(
                "trainer.shape_mismatch",
                f"the checkpoint in {directory} belongs to another model: {other} and {name} are one tensor in this "
                "model (tie_word_embeddings), but differ in the checkpoint",
            )


def check_shapes(directory: str | Path, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Compares the tensors of a checkpoint, `given`, with the model's, `wanted`, by name and shape. Raises
    CheckpointError trainer.shape_mismatch, which names up to three tensors that do not fit.
    """
    problems = [f"{name} is missing" for name in wanted if name not in given]
    problems += [f"{name} is not in this model" for name in given if name not in wanted]
    problems += [
        f"{name} has the shape {list(given[name].shape)} in the checkpoint and {list(tensor.shape)} in this model"
        for name, tensor in wanted.items()
        if name in given and given[name].shape != tensor.shape
    ]
    if problems:
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise CheckpointError("trainer.shape_mismatch", f"the checkpoint in {directory} does not fit this model, or these adapters: {shown}")


def tensors_in(file: Path) -> Iterator[tuple[str, Tensor]]:
    """Yields (name, tensor) of a safetensors file in the order of the names. A tensor is read when it is used."""
    yield from sorted(mapped_tensors(file).items())
