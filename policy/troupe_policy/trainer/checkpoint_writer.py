"""Writes checkpoints beside training: training continues while each rank writes its shards.

In: live tensors by name, a directory of published weights, the manifest's entries. Out: a checkpoint, complete or
absent, and a future of its manifest's digest and its size.
Invariants: a checkpoint holds the tensors as they were when it was begun: whoever changes them calls
`wait_until_copied` first. One checkpoint is written at a time. The commit is a rename by rank 0 after every rank has
fsynced its files, so a crash leaves the previous checkpoint as the newest.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from ..model.disk_full import naming_disk_full
from ..model.checkpoint import MANIFEST, CheckpointError, link_or_copy, manifest_text
from ..model.published_directory import published_directory
from .ranks.ranks import Ranks
from .ranks.sharded_files import Digests, host_copy, write_shards

WHAT = "a checkpoint"


@dataclass(frozen=True)
class SavedCheckpoint:
    """manifest: sha256 of the manifest, which has the digest of every other file. size: bytes of those files."""

    manifest: str
    size: int


class CheckpointWriter:
    """Writes this rank's part of each checkpoint. Every rank makes the same calls, in the same order."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._last: Future[SavedCheckpoint] | None = None
        self._copied = threading.Event()
        self._copied.set()

    def wait_until_copied(self) -> None:
        """Returns when the checkpoint in progress, if there is one, no longer reads the live tensors."""
        self._copied.wait()

    def wait(self) -> None:
        """Returns when no checkpoint is being written. Raises nothing: the future that `begin` returned holds the
        error.
        """
        if self._last is not None:
            self._last.exception()

    def begin(
        self,
        directory: Path,
        weights: Path | None,
        parts: dict[str, Mapping[str, Tensor] | Path],
        manifest: Callable[[], dict],
    ) -> Future[SavedCheckpoint]:
        """Begins to write `directory` and returns at once, or when the previous checkpoint is written. Collective.

        weights: published directory whose files become part of the checkpoint; None for a checkpoint without published
        weights. parts: by folder, live tensors, which are taken out of `parts` when they are copied, or the folder of
        an earlier checkpoint that holds the same tensors. manifest: called on rank 0 only; returns the entries of the
        manifest to write except `files`, and under `weights`, which is not written, the published manifest's `files`.
        If `manifest` raises OSError or CheckpointError, or the directory cannot be made, rank 0 raises that error and
        the others CheckpointError.
        """
        self.wait()
        commit = ExitStack()
        opened: tuple[bool, str] = (False, "")
        failure: OSError | CheckpointError | None = None
        entries: dict = {}
        if self._ranks.is_leader:
            try:
                entries = manifest()
                with naming_disk_full(directory, WHAT):
                    opened = (True, str(commit.enter_context(published_directory(directory))))
            except (OSError, CheckpointError) as error:
                opened, failure = (False, str(error)), error
        is_open, said = self._ranks.broadcast(opened)
        if not is_open:
            raise failure or CheckpointError("trainer.failed", said)
        self._copied.clear()
        self._last = self._thread.submit(self._write, directory, commit, Path(said), weights, parts, entries)
        return self._last

    def _write(
        self,
        directory: Path,
        commit: ExitStack,
        temporary: Path,
        weights: Path | None,
        parts: dict[str, Mapping[str, Tensor] | Path],
        manifest: dict,
    ) -> SavedCheckpoint:
        group = self._ranks.background
        try:
            # On an error `commit` ends first and removes the temporary directory, so that the error about a full disk
            # says how much is free without it.
            with naming_disk_full(directory, WHAT), commit:
                copies = self._copies(parts)
                digests: Digests = {}
                for folder in sorted(copies):
                    written = write_shards(copies.pop(folder), temporary / folder, group)
                    digests |= {f"{folder}/{name}": digest for name, digest in written.items()}
                for digest in self._gathered(digests):
                    digests |= digest
                return self._finish(temporary, weights, parts, manifest, digests)
        except (OSError, CheckpointError):
            raise
        except BaseException as error:  # dcp's CheckpointException is no Exception, only a BaseException
            raise CheckpointError("trainer.failed", f"the checkpoint in {temporary} could not be written: {error}") from error

    def _copies(self, parts: dict[str, Mapping[str, Tensor] | Path]) -> dict[str, dict[str, Tensor]]:
        """Copies the live tensors to the host's memory. Takes them out of `parts`, which would keep their memory in
        use.
        """
        copies: dict[str, dict[str, Tensor]] = {}
        try:
            for folder, part in parts.items():
                if not isinstance(part, Path):
                    copies[folder] = host_copy(part)
                    parts[folder] = {}
            return copies
        finally:
            self._copied.set()

    def _gathered(self, digests: Digests) -> list[Digests]:
        """Digests of every rank's files, on rank 0; [] on the others."""
        if self._ranks.size == 1:
            return [digests]
        kept: list[Digests] | None = [{}] * self._ranks.size if self._ranks.is_leader else None
        dist.gather_object(digests, kept, dst=0, group=self._ranks.background)
        return kept or []

    def _finish(
        self, temporary: Path, weights: Path | None, parts: Mapping[str, Mapping[str, Tensor] | Path], manifest: dict, digests: Digests
    ) -> SavedCheckpoint:
        """Adds the published weights, the parts of earlier checkpoints and the manifest. Ranks other than 0 return an
        empty result.
        """
        if not self._ranks.is_leader:
            return SavedCheckpoint("", 0)
        files: Digests = dict(digests)
        for name, described in manifest["weights"].items() if weights is not None else ():
            link_or_copy(weights / name, temporary / name)
            files[name] = described
        for folder, part in parts.items():
            if isinstance(part, Path):
                files |= self._linked(part, folder, temporary)
        whole = {key: value for key, value in manifest.items() if key != "weights"} | {"files": dict(sorted(files.items()))}
        text = manifest_text(whole)
        (temporary / MANIFEST).write_text(text)
        size = sum(described["bytes"] for described in files.values())
        return SavedCheckpoint(hashlib.sha256(text.encode()).hexdigest(), size)

    def _linked(self, source: Path, folder: str, temporary: Path) -> Digests:
        """Hard-links (or copies) the files of an earlier checkpoint's folder. Returns their digests from its manifest.
        """
        known: Digests = json.loads((source.parent / MANIFEST).read_text())["files"]
        found = {name: described for name, described in known.items() if name.startswith(f"{folder}/")}
        for name in found:
            link_or_copy(source.parent / name, temporary / name)
        return found
