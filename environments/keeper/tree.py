"""Removes a directory with all that is in it.

in   a path        out  nothing
Invariant: rm(1) removes what Python cannot: an environment's directories may nest deeper than Python can recurse, or
deeper than the longest path that the kernel takes.
"""

import os
import shutil


def remove(path):
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass
    except (OSError, RecursionError):
        os.waitpid(os.posix_spawnp("rm", ["rm", "-rf", "--", path], {"PATH": "/usr/bin:/bin"}), 0)
