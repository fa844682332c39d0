"""Names the error of a write that failed for lack of disk space.

In: a block that writes below a path. Out: its errors unchanged, but a full disk or a quota as CheckpointError
checkpoint.disk_full with the path and what is free, and a file at its size limit as checkpoint.file_too_large: the learner
waits for room after the first, and waiting would not help after the second.
Invariant: the libraries' own forms are known: OSError; safetensors and torch give the system's error as text, and
torch.save of a file that was cut short says only at which position it was.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .manifest import CheckpointError

DISK_FULL = "checkpoint.disk_full"
TOO_LARGE = "checkpoint.file_too_large"
NUMBERS = {errno.ENOSPC: DISK_FULL, errno.EDQUOT: DISK_FULL, errno.EFBIG: TOO_LARGE}
# the system's texts
TEXTS = {
    DISK_FULL: re.compile(r"No space left on device|Disk quota exceeded|os error (28|122)\b"),
    TOO_LARGE: re.compile(r"File too large|os error 27\b"),
}
# "enforce fail … unexpected pos" of torch's zip writer after a write that was cut short, for either reason
CUT_SHORT = re.compile(r"unexpected pos \d+")


def code_of(error: BaseException | None) -> str | None:
    """Code for the error, or one that caused it, if a write failed for lack of space; None for all others."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno is not None:
            return NUMBERS.get(error.errno)
        code = getattr(error, "code", None)
        if code in TEXTS:
            return code
        for code, text in TEXTS.items():
            if text.search(str(error)):
                return code
        if CUT_SHORT.search(str(error)):
            return DISK_FULL if resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY else TOO_LARGE
        error = error.__cause__ or error.__context__
    return None


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write on the file system of `path`, or of its nearest parent that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


@contextmanager
def naming_disk_full(target: Path, what: str) -> Iterator[None]:
    """Raises CheckpointError checkpoint.disk_full, or checkpoint.file_too_large, in place of the system's error."""
    try:
        yield
    except BaseException as error:
        code = code_of(error)
        if code is None or getattr(error, "code", None) == code:
            raise
        if code == TOO_LARGE:
            raise CheckpointError(
                code, f"{what} in {target} needs a file that is larger than a file may be here (`ulimit -f`, or the file system's limit)"
            ) from error
        free = free_bytes(Path(target)) / 2**20
        raise CheckpointError(
            code, f"the disk has no space left for {what} in {target}; {free:.1f} MiB are free now that what was written is removed"
        ) from error
