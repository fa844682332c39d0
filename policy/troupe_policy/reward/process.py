"""`python -m troupe_policy.reward.process`: a user's reward function, in a process of its own.

in   lines {"id", "answer", "task"} on descriptor 3      out  lines {"id", "score", "why"} or {"id", "fault", "why"} on descriptor 4
Invariant: every line is answered unless the function hangs or ends the process, which the parent sees. What the function
prints goes to stdout and stderr, never among the answers; its standard input is empty. It ends with its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ..child_process import die_with_parent

WHY_CHARS = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="troupe_policy.reward.process")
    parser.add_argument("--file")
    parser.add_argument("--module")
    parser.add_argument("--function", required=True)
    parser.add_argument("--parent", type=int, required=True)
    given = parser.parse_args()
    life = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    die_with_parent(given.parent, stdin=life)
    for descriptor in (3, 4, life):
        os.set_inheritable(descriptor, False)
    asks = os.fdopen(3, "r", encoding="utf-8", errors="surrogatepass")
    answers = os.fdopen(4, "w", encoding="utf-8", errors="surrogatepass")

    def say(**line: object) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    try:
        reward = load(given.file, given.module, given.function)
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, SystemExit included
        say(ready=False, why=described(error))
        return
    say(ready=True)
    for line in asks:
        ask = json.loads(line)
        say(id=ask["id"], **judged(reward, ask["answer"], ask["task"]))


def load(file: str | None, module: str | None, function: str) -> Callable[..., Any]:
    """The function; raises what importing raises, and TypeError where there is no such function."""
    if file is not None:
        path = os.path.abspath(file)
        sys.path.insert(0, os.path.dirname(path))
        name = "user_" + os.path.splitext(os.path.basename(path))[0]  # not to stand for a library of the same name
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no Python file")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
    else:
        sys.path.insert(0, os.getcwd())
        loaded = importlib.import_module(str(module))
    found: Any = loaded
    for name in function.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        have = [n for n, v in vars(loaded).items() if inspect.isfunction(v) and v.__module__ == loaded.__name__]
        raise TypeError(f"there is no function '{function}' in {file or module}; it has {', '.join(have) or 'none'}")
    return found


def judged(reward: Callable[..., Any], answer: str, task: dict[str, Any]) -> dict[str, object]:
    try:
        given = reward(answer, task)
        if inspect.iscoroutine(given):
            given = asyncio.run(given)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return {"fault": "raised", "why": described(error)}
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    why: object = None
    if isinstance(given, dict):
        if "score" not in given:
            return {"fault": "no-number", "why": f"it returned a dict without 'score': {list(given)[:8]}"[:WHY_CHARS]}
        why, given = given.get("why"), given["score"]
    try:
        score = float(given)
    except Exception:  # noqa: BLE001 - __float__ may raise anything
        return {"fault": "no-number", "why": f"it returned {given!r:.80}, a {type(given).__name__}"}
    if isinstance(given, str) or not math.isfinite(score):
        return {"fault": "no-number", "why": f"it returned {given!r:.80}"}
    return {"score": score, **({} if why is None else {"why": str(why)[:WHY_CHARS]})}


def described(error: BaseException) -> str:
    """`ValueError: too small (reward.py:12)`: the innermost line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}"[:WHY_CHARS] + place


if __name__ == "__main__":
    main()
