"""Prints the instances of task families, a JSON line each; run as `python -m troupe_environments.instances`.

In, one JSON object on stdin: {package, split, seed, count, families: [{name, options}]}; split is train or eval.
Out: {family, index, question, system, entry} for each instance, `count` a family or as many as it has. `entry` is what
the package's own reward needs.
Invariant: the same request and package version give the same lines. What a package prints goes to stderr; a family
that cannot be had ends the process with a line {error, family} and exit code 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from .sources import source_of


def instances_of(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Lines for a request, families in their order."""
    source = source_of(request["package"])
    for family in request["families"]:
        name, options = family["name"], family.get("options") or {}
        try:
            for index, (question, system, entry) in enumerate(
                source.instances(name, options, request["split"], request["seed"], request["count"])
            ):
                yield {"family": name, "index": index, "question": question, "system": system, "entry": entry}
        except Exception as error:  # a package may raise anything: the caller shows it
            yield {"error": f"{type(error).__name__}: {error}", "family": name}
            return


def main() -> int:
    # What packages print must not come between the lines.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in instances_of(json.load(sys.stdin)):
        out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        if "error" in line:
            out.flush()
            return 1
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
