"""Names the error of a write that failed for lack of disk space.

In: a block that writes below a path. Out: its errors unchanged, but a full disk, a quota or a file size limit as
CheckpointError checkpoint.disk_full with the path, what was needed and what is free.
Invariant: the libraries' own forms are known: OSError; safetensors and torch give the system's error as text, and
torch.save of a file that was cut short says only at which position it was.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .manifest import CheckpointError

CODE = "checkpoint.disk_full"
NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# the system's texts, and "enforce fail … unexpected pos" of torch's zip writer after a write that was cut short
TEXTS = re.compile(r"No space left on device|Disk quota exceeded|File too large|os error (28|122|27)\b|unexpected pos \d+")


def is_disk_full(error: BaseException | None) -> bool:
    """True if the error, or one that caused it, is of a full disk."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno in NUMBERS
        if getattr(error, "code", None) == CODE or TEXTS.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write on the file system of `path`, or of its nearest parent that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


@contextmanager
def naming_disk_full(target: Path, what: str) -> Iterator[None]:
    """Raises CheckpointError checkpoint.disk_full in place of the error of a full disk."""
    try:
        yield
    except BaseException as error:
        if not is_disk_full(error) or getattr(error, "code", None) == CODE:
            raise
        free = free_bytes(Path(target)) / 2**20
        raise CheckpointError(
            CODE, f"the disk has no space left for {what} in {target}; {free:.1f} MiB are free now that what was written is removed"
        ) from error
