"""The manifest of a checkpoint or of published weights: sha256 and size of every other file in the directory.

In: a directory; optionally the sha256 of manifest.json, as the run's log records it. Out: the manifest, None if
the directory has none that Troupe wrote, or a CheckpointError that names the file and what is wrong with it.
Invariants: if the caller gives that sha256, manifest.json must exist and have it, which is checked before the file is
parsed. A file that differs from its entry in size or sha256 raises CheckpointError when it is checked, and so does a
file beside the model's that a library would load although the manifest does not name it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

MANIFEST = "manifest.json"
# Number of the directory's layout. 1: one file holds the optimizer's whole tensors, and the manifest has no digests of
# single files. 2: the optimizer's tensors are saved in shards, and the manifest has the digest of every other file.
FORMAT = 2
CHUNK_BYTES = 4 * 1024 * 1024
# Names of the files beside config.json that transformers and inference servers load if they are there.
LOADED = re.compile(
    r".*\.safetensors(\.index\.json)?|pytorch_model.*\.bin(\.index\.json)?|.*\.jinja|.*\.tiktoken|.*config\.json"
    r"|tokenizer\.(json|model)|special_tokens_map\.json|added_tokens\.json|vocab\.(json|txt)|merges\.txt|chat_template\.json"
)
ADVICE = "copy it again from an intact copy, or use another checkpoint"


class CheckpointError(RuntimeError):
    """A checkpoint or published weights cannot be read (missing, damaged, newer, of another model or call) or written
    (no space). `code` is for programs: trainer.no_checkpoint, …
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def corrupt(message: str) -> CheckpointError:
    return CheckpointError("trainer.checkpoint_corrupt", f"{message}: {ADVICE}")


def manifest_text(manifest: Mapping[str, object]) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def manifest_digest(manifest: Mapping[str, object]) -> str:
    """sha256 in hex of manifest.json with this content."""
    return hashlib.sha256(manifest_text(manifest).encode()).hexdigest()


def load_manifest(directory: Path, expected: str = "") -> dict | None:
    """Reads manifest.json. Returns None if `expected` is empty and the file is missing or another program wrote it.
    expected: the sha256 in hex that the file must have; empty turns that check off. Raises CheckpointError if
    `expected` is given and the file is missing or differs, or if the file is damaged or has a newer format.
    """
    file = directory / MANIFEST
    if not file.is_file():
        if expected:
            raise corrupt(f"{file} is missing, but the run's log has its digest {expected[:12]}…")
        return None
    content = file.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if expected and found != expected:
        raise corrupt(f"{file} has the digest {found[:12]}…, but the run's log says {expected[:12]}…")
    try:
        manifest = json.loads(content)
    except ValueError as error:  # a UnicodeDecodeError is a ValueError, too
        raise corrupt(f"{file} is not JSON ({error})") from error
    if not expected and not _is_ours(manifest):
        return None
    if not isinstance(manifest, dict) or not _names_files(manifest.get("files", {})):
        raise corrupt(f"{file} is no manifest that Troupe writes: expected a JSON object whose \"files\" have sha256 and bytes")
    written = manifest.get("format", 1)
    if not isinstance(written, int) or written > FORMAT:
        raise CheckpointError(
            "trainer.checkpoint_newer",
            f"{file} has the format {written}, but this version reads formats up to {FORMAT}: use the version of Troupe "
            "that wrote it, or a newer one",
        )
    return manifest


def _is_ours(manifest: object) -> bool:
    """False for the content of a manifest.json that another program wrote."""
    return isinstance(manifest, dict) and (isinstance(manifest.get("format"), int) or isinstance(manifest.get("digest"), str))


def _names_files(files: object) -> bool:
    return isinstance(files, dict) and all(
        isinstance(one, dict) and isinstance(one.get("sha256"), str) and isinstance(one.get("bytes"), int) for one in files.values()
    )


def of_model(name: str) -> bool:
    """True for a file of the model itself, by its path below the directory: a trainer's state and adapters lie in
    folders.
    """
    return "/" not in name


def beside_weights(name: str) -> bool:
    """True for a file of the model that is not its weights: config, tokenizer, chat template."""
    return of_model(name) and not name.endswith(".safetensors")


def check_model(directory: str | Path, wanted: Callable[[str], bool] = of_model) -> None:
    """Checks the files of a model (weights, config, tokenizer) for whose names `wanted` is true against the manifest
    beside them. Does nothing for a directory without a manifest that names its files; but a trainer's checkpoint must
    have a manifest. Raises CheckpointError.
    """
    path = Path(directory)
    manifest = load_manifest(path) if path.is_dir() else None
    if manifest is not None and "files" in manifest:
        check_files(path, manifest, wanted)
    elif manifest is None and (path / "training" / ".metadata").is_file():
        raise corrupt(f"{path} is a checkpoint of a trainer, but its {MANIFEST} is missing")


def check_files(directory: Path, manifest: Mapping[str, dict], wanted: Callable[[str], bool] = lambda _: True) -> None:
    """Compares the files for whose names `wanted` is true with the manifest's entries, and refuses files that
    `check_unnamed` finds. Raises CheckpointError trainer.checkpoint_corrupt, trainer.unnamed_file.
    """
    check_unnamed(directory, manifest)
    for name, described in manifest["files"].items():
        if wanted(name):
            check_file(directory / name, described)


def check_unnamed(directory: Path, manifest: Mapping[str, dict]) -> None:
    """Refuses a file of the directory itself (not of its folders) that a library would load, but that the manifest does
    not name. Raises CheckpointError trainer.unnamed_file.
    """
    for file in sorted(directory.iterdir()):
        name = file.name
        is_known = name in manifest["files"] or name == MANIFEST or name.startswith(".")
        if not is_known and LOADED.fullmatch(name) and not file.is_dir():
            raise CheckpointError(
                "trainer.unnamed_file", f"{file} would be loaded, but the manifest beside it does not name it: remove that file"
            )


def check_file(file: Path, described: Mapping[str, object]) -> None:
    """Compares size and sha256 of a file with its entry in a manifest. Raises CheckpointError
    trainer.checkpoint_corrupt.
    """
    expected, size = described["sha256"], described["bytes"]
    if not file.is_file():
        raise corrupt(f"{file} is missing, but the manifest beside it has its digest {str(expected)[:12]}…")
    found = file.stat().st_size
    if found != size:
        raise corrupt(f"{file} has {found} bytes, but the manifest says {size}")
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        raise corrupt(f"{file} has the digest {digest.hexdigest()[:12]}…, but the manifest says {str(expected)[:12]}…")
