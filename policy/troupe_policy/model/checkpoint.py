"""Checkpoints: a directory that `transformers` loads, complete or not there at all.

In: a model, its optimizer, tokenizer files. Out: a directory with safetensors weights, config, tokenizer files,
optimizer/state.safetensors and parts (below adapter/, reference/) where there are some, and manifest.json. Invariants: everything is written to a temporary directory
beside the target, fsynced, then renamed, so a crash leaves either the old directory or the new one, whole; loading
verifies the digest of the manifest, and state that was saved and loaded is the same bit for bit.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

# progress bars of single calls would end up between a run's own lines
transformers_logging.disable_progress_bar()

MANIFEST = "manifest.json"
# not beside the config: engines load every safetensors file that lies there
OPTIMIZER = "optimizer/state.safetensors"
CHUNK_BYTES = 4 * 1024 * 1024

# What a tokenizer and generation need beside the weights; copied as they are from the directory the model came from.
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
    """A checkpoint that is not there, damaged, or of another model. `code` is for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def weight_files(directory: Path) -> list[Path]:
    """The model's safetensors files, sorted by name; the optimizer's is not among them, which earlier versions put beside them."""
    return sorted(file for file in directory.glob("*.safetensors") if file.name != "optimizer.safetensors")


def weights_digest(directory: Path) -> tuple[str, int]:
    """(sha256 over the weight files' bytes in the order of their names, as hex; their size in bytes)."""
    digest = hashlib.sha256()
    size = 0
    for file in weight_files(directory):
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    return digest.hexdigest(), size


def read_companions(directory: Path) -> dict[str, bytes]:
    """Tokenizer and generation files by name. Read at start: their directory may be gone when a checkpoint is written."""
    return {name: (directory / name).read_bytes() for name in COMPANIONS if (directory / name).is_file()}


@contextmanager
def published_directory(target: Path) -> Iterator[Path]:
    """Gives a temporary directory beside `target`; when the block ends well it is fsynced and becomes `target`.

    An older `target` is exchanged in one system call, then removed. When the block fails nothing but the temporary
    directory is touched. Leftovers of processes that died on the way are removed.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    temporary = target.parent / f".{target.name}.{os.getpid()}.tmp"
    temporary.mkdir()
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            # safetensors makes files that only their owner can read; an engine may run as somebody else
            file.chmod(0o755 if file.is_dir() else 0o644)
            _fsync(file)
        _fsync(temporary)
        _publish(temporary, target)
        _fsync(target.parent)
    finally:
        # after an exchange this is the old directory
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    for leftover in target.parent.glob(f".{target.name}.*.tmp"):
        pid = leftover.name.split(".")[-2]
        if pid.isdigit() and (int(pid) == os.getpid() or not _alive(int(pid))):
            shutil.rmtree(leftover, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _publish(temporary: Path, target: Path) -> None:
    if not target.exists():
        os.rename(temporary, target)
        return
    if _exchange(temporary, target):
        return
    # No exchange on this system: between the two renames the old directory has another name for a moment.
    aside = target.parent / f".{target.name}.{os.getpid()}.old"
    os.rename(target, aside)
    os.rename(temporary, target)
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two paths atomically (Linux renameat2 with RENAME_EXCHANGE); False where that does not exist."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    at_cwd, rename_exchange = -100, 2
    if renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), rename_exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(other))


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
    """Writes a checkpoint and returns (digest, bytes) of its weights, as `weights_digest` computes them.

    optimizer: flat state by name, or None to leave it out. counters: numbers that belong to the optimizer's state.
    companions: files as they are. weights: instead of the model's own, by its own names. parts: tensors by file, each below a
    folder of its own, since engines load every safetensors file that lies beside the config; or the file of an earlier
    checkpoint that has them already: it is linked, not copied. described: what else the manifest shall say.
    """
    target = Path(directory)
    with published_directory(target) as temporary:
        own = {} if weights is None else {"state_dict": dict(weights)}
        # what a user put beside the weights wins over what save_pretrained derives from the config
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
    """The manifest, or None for a model directory that was not written here. Verifies the weights' digest."""
    path = Path(directory)
    if not path.is_dir():
        raise CheckpointError("trainer.no_checkpoint", f"{path} is no directory")
    if not (path / MANIFEST).is_file():
        return None
    manifest = json.loads((path / MANIFEST).read_text())
    digest, size = weights_digest(path)
    if digest != manifest["digest"]:
        raise CheckpointError(
            "trainer.checkpoint_corrupt",
            f"the weights in {path} ({size} bytes) have digest {digest[:12]}…, the manifest says {manifest['digest'][:12]}…",
        )
    return manifest


def read_weights(directory: str | Path, model: nn.Module) -> dict[str, Tensor]:
    """The weights of `directory` by the names that `model` has. Raises CheckpointError where they are of another model."""
    try:
        source = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError("trainer.no_checkpoint", f"no model could be read from {directory}: {error}") from error
    # with duplicates: whether a head is tied is part of the model's form, too
    given = dict(source.named_parameters(remove_duplicate=False)) | dict(source.named_buffers())
    wanted = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    check_shapes(directory, given, wanted)
    return {name: tensor.detach() for name, tensor in given.items()}


def check_shapes(directory: str | Path, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raises CheckpointError trainer.shape_mismatch that names up to three tensors."""
    problems = [f"{name} is missing" for name in wanted if name not in given]
    problems += [f"{name} is not in this model" for name in given if name not in wanted]
    problems += [
        f"{name} is {list(given[name].shape)} there and {list(tensor.shape)} here"
        for name, tensor in wanted.items()
        if name in given and given[name].shape != tensor.shape
    ]
    if problems:
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise CheckpointError("trainer.shape_mismatch", f"the checkpoint in {directory} is of another model: {shown}")


def tensors_in(file: Path) -> Iterator[tuple[str, Tensor]]:
    """One at a time, in the order of their names."""
    with safe_open(str(file), framework="pt") as reader:
        for name in sorted(reader.keys()):
            yield name, reader.get_tensor(name)
