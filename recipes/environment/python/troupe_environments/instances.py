"""Prints the instances of task families, one JSON line each: `python -m troupe_environments.instances [PARENT]`.

In: a line of JSON on stdin, {package, split, seed, count, families: [{name, options}]}; split is train or eval.
Out: a line {position, family, index, question, system, entry} per instance, `count` per family or as many as it has.
position: index of the family in the request, which may name a family twice. entry: data that the package's own reward
needs. Invariants: the same request and package version give the same lines. A package's prints go to stderr. A family
that fails ends the process with a line {error, family} and exit code 1. With PARENT, the parent's pid, the process ends
with its parent, and at the end of stdin.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from .sources import source_of


def instances_of(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the lines for a request, families in their order; if a family fails, the last line has `error`."""
    for position, family in enumerate(request["families"]):
        name, options = family["name"], family.get("options") or {}
        try:
            source = source_of(request["package"], name)
            for index, (question, system, entry) in enumerate(
                source.instances(name, options, request["split"], request["seed"], request["count"])
            ):
                asked = {"question": question, "system": system, "entry": entry}
                yield {"position": position, "family": name, "index": index, **asked}
        except Exception as error:  # a package may raise anything; the caller shows it
            yield {"error": f"{type(error).__name__}: {error}", "family": name}
            return


def main() -> int:
    request = json.loads(sys.stdin.readline())
    if len(sys.argv) > 1:
        # late: imported only with PARENT, since without it this file also runs where troupe_policy is not on the path
        from troupe_policy.child_process import die_with_parent

        parent_pipe = os.dup(0)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        die_with_parent(int(sys.argv[1]), stdin=parent_pipe)
    # Prints of packages go to stderr, so that they do not appear between the lines.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in instances_of(request):
        out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        if "error" in line:
            out.flush()
            return 1
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
