"""Demonstrations in files: token ids and masks that are read when a batch needs them.

In: a directory of safetensors files with `tokens` (int32), `mask` (uint8) and `ends` (int64, where each example ends in
its file), and manifest.json with the sha256 of each. Out: examples by index, and all their lengths.
Invariants: an example takes 16 bytes of memory, whatever its length; its tokens are read from disk when it is used.
A file whose sha256 differs from the manifest's is refused.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
from safetensors import SafetensorError, safe_open

T = TypeVar("T")
CHUNK_BYTES = 4 * 1024 * 1024


class ExampleFilesError(ValueError):
    """The files cannot be read, or their digest is not the expected one."""


@dataclass(frozen=True)
class SftExample:
    """One demonstration (a recorded conversation to imitate). tokens: int32 [n]. mask: uint8 [n], 1 for tokens that
    count in the loss.
    """

    tokens: np.ndarray
    mask: np.ndarray


class ExampleFiles(Sequence[SftExample]):
    """The examples of a directory. `digest`: sha256 of its manifest, which has the digest of every file."""

    def __init__(self, directory: str | Path, digest: str, *, rank: int = 0, ranks: int = 1) -> None:
        """digest: expected sha256 of manifest.json. Every rank verifies a share of the files. Raises ExampleFilesError.
        """
        folder = Path(directory)
        try:
            text = (folder / "manifest.json").read_bytes()
        except OSError as error:
            raise ExampleFilesError(f"the demonstrations in {folder} cannot be read: {error}") from error
        self.digest = hashlib.sha256(text).hexdigest()
        if self.digest != digest:
            raise ExampleFilesError(f"the demonstrations in {folder} have the digest {self.digest[:12]}…; expected {digest[:12]}…: resume the run, which renders them again")
        self._readers: list[Any] = []
        self._firsts: list[int] = []
        ends: list[np.ndarray] = []
        for at, (name, described) in enumerate(json.loads(text)["files"].items()):
            if at % ranks == rank:
                _check(folder / name, described["sha256"])
            try:
                reader = safe_open(str(folder / name), framework="numpy")
                end = reader.get_tensor("ends")
            except (OSError, SafetensorError) as error:
                raise ExampleFilesError(f"the demonstrations in {folder / name} cannot be read: {error}") from error
            self._readers.append(reader)
            self._firsts.append(sum(map(len, ends)))
            ends.append(end)
        self._ends = ends
        self.lengths = np.concatenate([np.diff(each, prepend=0) for each in ends]) if ends else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, at: int) -> SftExample: ...
    @overload
    def __getitem__(self, at: slice) -> list[SftExample]: ...
    def __getitem__(self, at: int | slice) -> SftExample | list[SftExample]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        file = bisect_right(self._firsts, at) - 1
        row = at - self._firsts[file]
        begin, end = int(self._ends[file][row - 1]) if row > 0 else 0, int(self._ends[file][row])
        reader = self._readers[file]
        return SftExample(reader.get_slice("tokens")[begin:end], reader.get_slice("mask")[begin:end])


class Lazy(Sequence[T], Generic[T]):
    """A sequence that stores no item: `make` makes item i each time that it is read."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length, self._make = length, make

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        return self._make(at)


def _check(file: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise ExampleFilesError(f"the demonstrations in {file} cannot be read: {error}") from error
    if digest.hexdigest() != sha256:
        raise ExampleFilesError(f"{file} does not have the digest that the manifest beside it names: resume the run, which renders the demonstrations again")
