"""Reads runs from a log, finished or live, into pandas or Arrow.

In: a bus address (default: $TROUPE_BUS, else lmdb:.troupe), a run's name. Out: tables with the columns of
docs/python.md. The `troupe` command reads the log in a process of its own, so that nothing here can harm a run.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from .command import TroupeError, command, ended_how, environment

Row = dict[str, Any]


class Run:
    """One run in a log. `info`: state, recipe, step, passAt1, startedAt … as of the time when this object was made."""

    def __init__(self, name: str, bus: str | None = None, info: Row | None = None) -> None:
        self.name = name
        self.info = info or {}
        self._place = _place(bus)

    def __repr__(self) -> str:
        return f"troupe.run({self.name!r})"

    def steps(self, to: str = "pandas") -> Any:
        """A row for each optimizer step: pass@1, tool errors, tokens, groups, and `metrics.*` of the update."""
        return _table([_flat(row) for row in self._progress() if row["type"] == "step"], to)

    def evaluations(self, to: str = "pandas") -> Any:
        """A row for each evaluation: step, name, passAt1, standardError, n."""
        return _table([_flat(row) for row in self._progress() if row["type"] != "step"], to)

    def trajectories(self, to: str = "pandas", of: str | None = None) -> Any:
        """A row for each trajectory, with its reward, messages and token ids. `of`: a group or a step, such as s0002."""
        return _table(self._rows("trajectories", of), to)

    def turns(self, to: str = "pandas", of: str | None = None) -> Any:
        """A row for each turn, with its engine, policy version, tokens, text, tool calls and errors."""
        return _table(self._rows("turns", of), to)

    def to_parquet(self, path: str, table: str = "trajectories") -> None:
        """Writes a table as Parquet, which `datasets.load_dataset("parquet", data_files=path)` loads."""
        _output("replay", "export", "--all", "--format", "parquet", "--table", table, "--out", path, *self._named())

    def _named(self) -> Sequence[str]:
        return [f"--run={self.name}", *self._place]

    def _progress(self) -> list[Row]:
        return _lines("replay", "steps", "--json", *self._named())

    def _rows(self, table: str, of: str | None) -> list[Row]:
        which = ["--all"] if of is None else []
        target = [] if of is None else ["--", of]
        return _lines("replay", "export", "--format", "rows", "--table", table, *which, *self._named(), *target)


def runs(bus: str | None = None) -> list[Run]:
    """The runs of a bus, the newest first."""
    return [Run(line["run"], bus, line) for line in _lines("replay", "runs", "--json", *_place(bus))]


def run(name: str, bus: str | None = None) -> Run:
    """The run of this name. @raises TroupeError if the bus has none."""
    (line,) = _lines("replay", "runs", "--json", f"--run={name}", *_place(bus))
    if "error" in line:
        raise TroupeError(f"{line['error']}\n  hint: troupe.runs() lists the runs of a bus")
    return Run(name, bus, line)


def _place(bus: str | None) -> list[str]:
    return [] if bus is None else [f"--bus={bus}"]


def _output(*args: str) -> str:
    done = subprocess.run(command(*args), capture_output=True, text=True, env=environment(), check=False)
    if done.returncode != 0:
        raise TroupeError(done.stderr.strip() or f"troupe {' '.join(args)} {ended_how(done.returncode)}")
    return done.stdout


def _lines(*args: str) -> list[Row]:
    return [json.loads(line) for line in _output(*args).splitlines()]


def _flat(row: Row) -> Row:
    """Replaces each inner object by its entries, under names such as metrics.loss."""
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": one for inner, one in value.items()})
        else:
            flat[name] = value
    return flat


def _table(rows: list[Row], to: str) -> Any:
    if to == "rows":
        return rows
    try:
        if to == "arrow":
            import pyarrow

            return pyarrow.Table.from_pylist(rows)
        if to == "pandas":
            import pandas

            return pandas.DataFrame.from_records(rows)
    except ImportError as error:
        raise TroupeError(f"{error.name} is not installed\n  hint: pip install {error.name}, or take to='rows'") from None
    raise ValueError(f"to={to!r}: expected 'pandas', 'arrow' or 'rows'")
