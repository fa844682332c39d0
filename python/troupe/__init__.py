"""Troupe from Python: reads the log of runs into data frames, and starts runs.

    import troupe
    run = troupe.run("quickstart-20261122-093044")     # or troupe.runs()[0]: the newest
    run.steps().plot(x="step", y="passAt1")
    run.turns(to="arrow")                               # pandas (default), arrow, or rows: a list of dicts

A run may still be in progress: every call reads the log as it is at that time. Recipes, rewards and tools can be plain
Python functions in one file: `troupe init --python`, then `troupe.train("recipe.py")`.
"""

from .log import Run, run, runs
from .start import train

__all__ = ["Run", "run", "runs", "train"]
