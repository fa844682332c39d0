"""Names the error of a write that failed for lack of disk space.

In: a block of code that writes below a path. Out: CheckpointError checkpoint.disk_full, with the path and the free
space, if the disk is full or the user's quota is used up; CheckpointError checkpoint.file_too_large if a file reached
the limit on the size of a file; any other error unchanged. The learner waits for room after the first; waiting cannot
help after the second.
An OSError is recognised by its number, an error of safetensors or torch by the system's text in its message. torch's
error after a short write names only a position in the file: see code_of.
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
# The operating system's texts in the messages of safetensors and torch.
TEXTS = {
    DISK_FULL: re.compile(r"No space left on device|Disk quota exceeded|os error (28|122)\b"),
    TOO_LARGE: re.compile(r"File too large|os error 27\b"),
}
# Part of the error of torch's zip writer after a short write. A full disk and the limit on a file's size give the same
# text.
CUT_SHORT = re.compile(r"unexpected pos \d+")


def code_of(error: BaseException | None) -> str | None:
    """Returns DISK_FULL or TOO_LARGE if `error`, or one of the errors that caused it, says so; else None. The first
    OSError with a number decides by that number; its causes are not read. A short write is TOO_LARGE if the process has
    a limit on the size of a file (RLIMIT_FSIZE), else DISK_FULL.
    """
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
    """Bytes that are free to users on the file system of `path`, or of its nearest parent that exists; quotas do not
    count.
    """
    while not path.exists() and path != path.parent:
        path = path.parent
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


@contextmanager
def naming_disk_full(target: Path, what: str) -> Iterator[None]:
    """Raises CheckpointError checkpoint.disk_full or checkpoint.file_too_large in place of an error of the block for
    which code_of gives that code. what: what is written, as the message names it.
    """
    try:
        yield
    except BaseException as error:
        code = code_of(error)
        if code is None or getattr(error, "code", None) == code:
            raise
        if code == TOO_LARGE:
            raise CheckpointError(
                code, f"{what} in {target} needs a file that is larger than a file may be here (`ulimit -f`, or the file system's limit): raise the limit"
            ) from error
        free = free_bytes(Path(target)) / 2**20
        raise CheckpointError(
            code, f"the disk has no space left for {what} in {target}, or the user's quota is used up; {free:.1f} MiB of the file system "
            "are free, after the files of this write were removed"
        ) from error
