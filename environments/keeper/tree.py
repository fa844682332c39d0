"""Removes a directory with all that is in it.

in   a path        out  nothing is there any more
Invariant: an environment's directories may be deeper than Python's recursion goes, or than a path is long: rm(1) removes
what Python cannot.
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
