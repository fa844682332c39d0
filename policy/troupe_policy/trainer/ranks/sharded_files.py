"""Directories of tensors in which each rank writes and reads its own shards (torch.distributed.checkpoint, dcp).

In: tensors by name, plain ones (equal on every rank) or DTensors. Out: files `__RANK_N.distcp` and `.metadata`, and
sha256 and size of the files that this rank wrote.
Invariants: what N ranks wrote, any number of ranks reads, bit for bit. A file's digest is computed from the bytes on
their way to the file, so nothing is read again.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.staging import BlockingAsyncStager

# dcp warns at every call of a trainer with one process that it works without torch.distributed.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")

Digests = dict[str, dict[str, Any]]


class HashedStream(io.IOBase):
    """A binary file opened for writing that computes sha256 and size of the bytes written to it."""

    def __init__(self, stream: io.IOBase) -> None:
        self._stream = stream
        self._sha256 = hashlib.sha256()
        self._size = 0

    def write(self, data: Any) -> int:
        self._sha256.update(data)
        self._size += memoryview(data).nbytes
        return self._stream.write(data)

    def tell(self) -> int:
        return self._size

    def fileno(self) -> int:
        # dcp asks for the descriptor to fsync it: bytes that Python still buffers have to be written first
        self._stream.flush()
        return self._stream.fileno()

    def flush(self) -> None:
        if not self._stream.closed:
            self._stream.flush()

    def close(self) -> None:
        self._stream.close()

    def digest(self) -> dict[str, Any]:
        return {"sha256": self._sha256.hexdigest(), "bytes": self._size}


class _HashingFiles(FileSystem):
    """File system through which dcp writes; `digests` has sha256 and size of each written file, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.digests: Digests = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[io.IOBase]:
        with super().create_stream(path, mode) as stream:
            hashed = HashedStream(stream)
            yield hashed
        self.digests[Path(path).name] = hashed.digest()

    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None:
        super().rename(path, new_path)
        self.digests[Path(new_path).name] = self.digests.pop(Path(path).name)


class _Writer(dcp.FileSystemWriter):
    """Writer whose metadata depends only on the shards: it lacks the random id and the path that dcp adds and nothing
    reads.
    """

    def storage_meta(self) -> None:
        return None


def host_copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies this rank's shards into the host's memory; DTensors stay DTensors of the same placement."""
    return dict(BlockingAsyncStager().stage(dict(tensors)))


def write_shards(tensors: Mapping[str, Tensor], directory: Path, group: dist.ProcessGroup | None) -> Digests:
    """Writes this rank's shards; returns the digests of the files that it wrote. Collective over `group`, which is None
    for a single rank. The files are fsynced.
    """
    files = _HashingFiles()
    writer = _Writer(directory)
    writer.fs = files
    dcp.save(dict(tensors), storage_writer=writer, process_group=group, no_dist=group is None)
    return files.digests


def shapes_in(directory: Path) -> dict[str, list[int]]:
    """Shapes of the whole tensors in a directory that write_shards wrote, by name."""
    described = dcp.FileSystemReader(directory).read_metadata().state_dict_metadata
    return {name: list(tensor.size) for name, tensor in described.items() if hasattr(tensor, "size")}


def read_shards(tensors: Mapping[str, Tensor], directory: Path, group: dist.ProcessGroup | None) -> None:
    """Reads into `tensors`, in place; each rank reads the parts that its shards need. Collective over `group`. Raises
    dcp's CheckpointException, which is no Exception, only a BaseException, on every rank.
    """
    reader = dcp.FileSystemReader(directory)
    dcp.load(dict(tensors), storage_reader=reader, process_group=group, no_dist=group is None)
