"""Becomes an agent's program, so that it ends with the process that started it.

argv: pid of the parent, bound on the program's address space in MiB (0: none), program, arguments. The kernel kills the
program when the parent ends, but not the processes that the program started.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main():
    parent, memory_mb = int(sys.argv[1]), int(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the kernel was told
        sys.exit(1)
    if memory_mb > 0:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        os.execvp(sys.argv[3], sys.argv[3:])
    except OSError as error:
        print(f"cannot start {sys.argv[3]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


main()
