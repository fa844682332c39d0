"""Reads what a child process writes to a pipe until the child closes the pipe, with a deadline of 50 s.

in   the read end, the child's pid        out  the bytes; or a TimeoutError, after the child was killed
Invariant: the deadline is shorter than the 60 s in which the keeper has to report (drivers/forkServer.ts), so that the
keeper can report why its environment did not start.
"""

import os
import select
import signal
import time

SECONDS = 50


def read_all(fd, kill):
    """Reads to the end, and closes the pipe."""
    parts, until = [], time.monotonic() + SECONDS
    try:
        while select.select([fd], [], [], max(0, until - time.monotonic()))[0]:
            part = os.read(fd, 65536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    finally:
        os.close(fd)
    os.kill(kill, signal.SIGKILL)
    raise TimeoutError(f"a process of the environment was not ready in {SECONDS} s")
