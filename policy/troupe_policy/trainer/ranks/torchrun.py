"""Starts several ranks of the trainer: this process becomes torchrun, which starts them and ends all when one ends.

In: the command line of `troupe_policy.server`; TROUPE_TORCHRUN_ARGS for more than one machine. Out: the same command
line, once per rank. Invariants: the process keeps its pid, so the kernel still ends it with its parent; every rank
asks to be ended with torchrun, and every rank reads the parent's pipe to its end.
"""

from __future__ import annotations

import os
import shlex
import sys


def in_torchrun() -> bool:
    """True in a process that torchrun started as one of several ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def run_ranks(ranks: int) -> None:
    """Replaces this process by torchrun. TROUPE_TORCHRUN_ARGS replaces `--standalone --nproc-per-node RANKS`."""
    asked = shlex.split(os.environ.get("TROUPE_TORCHRUN_ARGS", ""))
    places = asked or ["--standalone", "--nproc-per-node", str(ranks)]
    # Set here, because torchrun would set it to 1 too and print three lines about it; the server's --threads decides.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    command = ["-m", "torch.distributed.run", *places, "--max-restarts", "0", "-m", "troupe_policy.server", *sys.argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *command])
