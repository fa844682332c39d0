"""Publishes a directory atomically: readers see the whole old content or the whole new one.

In: a block that writes files into a temporary directory. Out: the target directory with those files, fsynced.
Invariant: where the system and the file system can exchange two paths (Linux), a crash at any point leaves the old
target or the new one. Elsewhere an existing target is missing between two renames; after a crash between them, the next
call for a target in the same folder puts the old target back. Each call also removes the temporary directories of dead
processes in that folder.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def published_directory(target: Path) -> Iterator[Path]:
    """Yields a temporary directory beside `target`; when the block succeeds, the directory is fsynced and becomes
    `target`.

    Before the block, leftovers of dead processes beside `target` are restored or removed. An older `target` is
    exchanged in one system call, if the system has it, then removed. When the block fails, `target` is unchanged and
    the temporary directory is removed.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    temporary = target.parent / f".{target.name}.{os.getpid()}.tmp"
    temporary.mkdir()
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            # safetensors makes files that only their owner can read, but an engine may run as another user.
            file.chmod(0o755 if file.is_dir() else 0o644)
            _fsync(file)
        _fsync(temporary)
        _publish(temporary, target)
        _fsync(target.parent)
    finally:
        # After an exchange the temporary path holds the old directory, which is removed here.
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    for leftover in [*target.parent.glob(".*.tmp"), *target.parent.glob(".*.old")]:
        name, pid = leftover.stem.rpartition(".")[::2]
        if not pid.isdigit():
            continue
        # A temporary directory of this process is a leftover only if it is this target's: another thread may be writing
        # another target.
        is_gone = name == f".{target.name}" if int(pid) == os.getpid() else not _is_alive(int(pid))
        if not is_gone:
            continue
        own = leftover.with_name(name.removeprefix("."))
        if leftover.suffix == ".old" and not own.exists():
            try:
                os.rename(leftover, own)  # the process died between the two renames of `_publish`
            except OSError:
                if not own.exists() and leftover.exists():  # else another process has put it back, or published anew
                    raise
        else:
            shutil.rmtree(leftover, ignore_errors=True)


def _is_alive(pid: int) -> bool:
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
    # Without an atomic exchange, the target is missing for a moment between the two renames.
    aside = target.parent / f".{target.name}.{os.getpid()}.old"
    os.rename(target, aside)
    try:
        os.rename(temporary, target)
    except OSError:
        os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two paths atomically (Linux renameat2 with RENAME_EXCHANGE); returns False if the system or the file system
    cannot.
    """
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
