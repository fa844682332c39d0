"""Ties a process to its parent: the process announces its socket on stdout, and ends when the parent does.

In: the parent's pid, and stdin, whose end means that the parent is gone. Out: one JSON line on stdout, {"ready":
true, "socket": …} or {"ready": false, "code": …, "message": …}.
Invariant: on Linux the kernel kills this process when its parent dies, kill -9 included; elsewhere it exits at the end
of stdin.
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
# Upper bound on the length of a unix socket's path, in bytes, without the closing zero (Linux).
MAX_SOCKET_PATH = 107
# Directories that this process made for its sockets; `exit_now` removes them.
_socket_folders: list[str] = []


def die_with_parent(parent: int | None = None, stdin: int = 0) -> None:
    """Asks the kernel for SIGKILL at the parent's death (Linux), and exits at the end of stdin on every system.

    parent: the parent's pid, if known. stdin: the descriptor to which stdin was moved.
    """
    end_with_parent(parent)
    threading.Thread(target=_exit_with_stdin, args=(stdin,), name="stdin", daemon=True).start()


def end_with_parent(parent: int | None) -> None:
    """Asks the kernel for SIGKILL at the parent's death (Linux), without a thread.

    parent: the parent's pid, if known. If that process is no longer the parent (it may have died before this call),
    this process exits with 1.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def _exit_with_stdin(stdin: int) -> None:
    # Reads the file descriptor directly: a buffered reader would hold a lock at exit.
    while os.read(stdin, 4096):
        pass
    exit_now(0)


def show_command_line(words: list[str]) -> None:
    """Writes a command line over this process's own, where `ps` reads it (proc(5), arg_start of /proc/PID/stat). Does
    nothing where there is no /proc. A line that is too long is cut.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return
    start, end = int(fields[45]), int(fields[46])
    line = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


def exit_now(status: int) -> None:
    """Exits at once, without waiting for threads that may be inside a long forward pass. Removes this process's socket
    directories.
    """
    for folder in _socket_folders:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.flush()
    os._exit(status)


def socket_address(asked: str | None) -> str:
    """Returns `unix:PATH`. PATH is `asked`, with or without the prefix `unix:`. If `asked` is None or empty, PATH is
    the file `socket` in a new directory that only this user can enter. Raises ValueError above MAX_SOCKET_PATH bytes.
    """
    if asked:
        path = asked.removeprefix("unix:")
    else:
        folder = tempfile.mkdtemp(prefix="troupe-")
        _socket_folders.append(folder)
        path = os.path.join(folder, "socket")
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise ValueError(f"the socket path {path} is longer than {MAX_SOCKET_PATH} bytes: give a shorter one, or a shorter TMPDIR")
    return f"unix:{path}"


def announce(**ready: object) -> None:
    """Writes the line on stdout that announces the service as ready. All other output of the process has to go to
    stderr.
    """
    sys.stdout.write(json.dumps({"ready": True, **ready}) + "\n")
    sys.stdout.flush()


def fail(code: str, message: str) -> None:
    """Writes the line on stdout that says why the service did not start, and exits with 1."""
    sys.stdout.write(json.dumps({"ready": False, "code": code, "message": message}) + "\n")
    sys.stdout.flush()
    sys.exit(1)
