"""Reads what a child writes to a pipe until it closes it, with a deadline.

in   the read end, the child's pid        out  the bytes; TimeoutError, and the child is dead
Invariant: the deadline is below the one in which a keeper has to report (drivers/forkServer.ts): it can still say why.
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
