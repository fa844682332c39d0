"""Starts runs: `troupe train` in a process of its own.

In: a recipe's name or file, options of the command line. Out: the run, after it has ended.
"""

from __future__ import annotations

import json
import subprocess

from .command import TroupeError, command, ended_how, environment
from .log import Run


def train(recipe: str, *options: str, bus: str | None = None) -> Run:
    """Trains to the end and returns the run; progress goes to stderr. `options`: options of `troupe train`, such as
    "--steps", "3".

    Raises TroupeError if the run fails. Ctrl-C drains the run, as on the command line.
    """
    place = [] if bus is None else [f"--bus={bus}"]
    words = command("train", recipe, "--json", *options, *place)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        last = None
        for line in process.stdout or ():
            last = json.loads(line)
    if process.returncode != 0 or last is None:
        said = "" if last is not None else ", and printed no line of JSON"
        raise TroupeError(f"troupe train {recipe} {ended_how(process.returncode)}{said}; its stderr has the reason")
    return Run(last["run"], bus, last)
