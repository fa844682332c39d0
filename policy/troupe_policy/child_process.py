"""A process that belongs to its parent: it announces its socket on stdout, and ends when the parent does.

in   the parent's pid, stdin as a line of life       out  one JSON line {"ready": true, "socket": …} on stdout
Invariant: no way of the parent's death, kill -9 included, leaves this process behind.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
import threading

PR_SET_PDEATHSIG = 1
# Directories of sockets that were chosen here.
_own_folders: list[str] = []


def die_with_parent(parent: int | None = None, stdin: int = 0) -> None:
    """Asks the kernel for SIGKILL at the parent's death (Linux), and ends at end of stdin everywhere.

    parent: its pid, where known: it may have died before the kernel was asked. stdin: where it was moved to.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=_end_with_stdin, args=(stdin,), name="stdin", daemon=True).start()


def _end_with_stdin(stdin: int) -> None:
    # A descriptor of our own: nothing else reads from it, and a buffered reader would hold a lock at exit.
    while os.read(stdin, 4096):
        pass
    end(0)


def end(status: int) -> None:
    """Ends at once, without waiting for threads that may be inside a long forward."""
    for folder in _own_folders:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.flush()
    os._exit(status)


def socket_address(asked: str | None) -> str:
    """`unix:PATH`; without a wish, a path in a new directory that only this user can enter."""
    if asked:
        path = asked.removeprefix("unix:")
    else:
        folder = tempfile.mkdtemp(prefix="troupe-")
        _own_folders.append(folder)
        path = os.path.join(folder, "socket")
    if len(os.fsencode(path)) > 107:
        raise ValueError(f"{path} is longer than the 107 bytes that a unix socket's path may have")
    return f"unix:{path}"


def announce(**ready: object) -> None:
    """The one line on stdout. Everything else goes to stderr."""
    sys.stdout.write(json.dumps({"ready": True, **ready}) + "\n")
    sys.stdout.flush()


def fail(code: str, message: str) -> None:
    """Tells the parent why there will be no service, and ends with 1."""
    sys.stdout.write(json.dumps({"ready": False, "code": code, "message": message}) + "\n")
    sys.stdout.flush()
    sys.exit(1)
