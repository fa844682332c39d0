"""`python -m troupe_policy.server_group --parent PID -- COMMAND…`: runs a server, and ends it with its process group
when this script's parent (PID) is gone.

In: a command line; stdin, whose end means that the server must end. Out: the server's own output; its exit status.
Invariant: the server has a process group of its own, all of which is ended when the server ends, when stdin closes (the
parent ended, kill -9 included) and on SIGTERM, SIGINT or SIGHUP. A process that leaves the group is not ended. If this
process itself is killed, the kernel kills the server (Linux), but not the processes that the server started.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import threading

from .child_process import PR_SET_PDEATHSIG

# Seconds that the server has to end by itself after SIGTERM: it frees GPUs and shared memory.
GRACE_S = 10.0


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="troupe_policy.server_group")
    parser.add_argument("--parent", type=int, required=True, help="pid of the parent, whose death ends the server")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- program and its arguments")
    given = parser.parse_args(argv)
    given.command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not given.command:
        parser.error("no command: write -- and the server's command line")
    return given


def _killed_with_parent() -> None:
    """Runs in the server's process before its program starts. Asks the kernel to kill the server when this script's
    process dies (Linux).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run(parent: int, command: list[str]) -> int:
    """Runs the command until it ends or must end. Returns its exit status, 128 + N after signal N; 127 if it could not
    be started; 1 if `parent` is no longer this process's parent.
    """
    if os.getppid() != parent:
        return 1
    try:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_killed_with_parent
        )
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: threading.Thread(target=_end, args=(server,)).start())
    threading.Thread(target=_end_with_stdin, args=(server,), name="stdin", daemon=True).start()
    status = server.wait()
    _signal_group(server, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def _end_with_stdin(server: subprocess.Popen) -> None:
    while os.read(0, 4096):
        pass
    _end(server)


def _end(server: subprocess.Popen) -> None:
    _signal_group(server, signal.SIGTERM)
    try:
        server.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _signal_group(server, signal.SIGKILL)


def _signal_group(server: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(server.pid, number)
    except ProcessLookupError:
        pass  # every process of the group has ended


if __name__ == "__main__":
    given = arguments()
    sys.exit(run(given.parent, given.command))
