"""`python -m troupe_policy.reward.process`: runs a user's reward function in its own process.

In: JSON lines {"id", "answer", "task"} on descriptor 3. Out: JSON lines on descriptor 4: first {"ready": true}, or
{"ready": false, "why"} if the function cannot be imported; then for each input line {"id", "score", "why"} or {"id",
"fault", "why"}; a score may come without "why".
Invariants: every line is answered unless the function hangs or ends the process, which the parent sees. The
function's prints go to stdout and stderr, never among the answers; its standard input is empty. The process ends with
its parent.
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

# Upper bound on the characters of a reason (`why`), without the file and line at the end of an error's reason. It is
# above what is shown, because the caller first removes secrets (it would not recognise half of one), then shortens it.
WHY_CHARS = 4596


def main() -> None:
    parser = argparse.ArgumentParser(prog="troupe_policy.reward.process")
    parser.add_argument("--file", help="Python file with the reward function")
    parser.add_argument("--module", help="importable module with the reward function, if --file is not given")
    parser.add_argument("--function", required=True, help="name of the function in the file or module")
    parser.add_argument("--parent", type=int, required=True, help="pid of the parent, whose death ends this process")
    given = parser.parse_args()
    parent_pipe = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    die_with_parent(given.parent, stdin=parent_pipe)
    for descriptor in (3, 4, parent_pipe):
        os.set_inheritable(descriptor, False)
    asks = os.fdopen(3, "r", encoding="utf-8", errors="surrogatepass")
    answers = os.fdopen(4, "w", encoding="utf-8", errors="surrogatepass")

    def write(**line: object) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    try:
        reward = load(given.file, given.module, given.function)
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, SystemExit included
        write(ready=False, why=described(error))
        return
    write(ready=True)
    for line in asks:
        ask = json.loads(line)
        write(id=ask["id"], **judged(reward, ask["answer"], ask["task"]))


def load(file: str | None, module: str | None, function: str) -> Callable[..., Any]:
    """Imports the reward function. Raises what the import raises, and TypeError if the module has no such function."""
    if file is not None:
        path = os.path.abspath(file)
        sys.path.insert(0, os.path.dirname(path))
        name = "user_" + os.path.splitext(os.path.basename(path))[0]  # the prefix keeps it from hiding a library of that name
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not a Python file")
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
        raise TypeError(f"{file or module} has no function '{function}'; its functions: {', '.join(have) or 'none'}")
    return found


def judged(reward: Callable[..., Any], answer: str, task: dict[str, Any]) -> dict[str, object]:
    """Calls the reward function. Returns {"score", "why"?}, or {"fault", "why"}: `raised` if the function raised an
    error, `no-number` if its result is neither a finite number nor a dict whose 'score' is one.
    """
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
            return {"fault": "no-number", "why": f"the function returned a dict without 'score': {list(given)[:8]}"[:WHY_CHARS]}
        why, given = given.get("why"), given["score"]
    try:
        score = float(given)
    except Exception:  # noqa: BLE001 - __float__ may raise anything
        return {"fault": "no-number", "why": f"the function returned {given!r:.80}, a {type(given).__name__}: expected a number"}
    if isinstance(given, str) or not math.isfinite(score):
        return {"fault": "no-number", "why": f"the function returned {given!r:.80}: expected a finite number"}
    return {"score": score, **({} if why is None else {"why": str(why)[:WHY_CHARS]})}


def described(error: BaseException) -> str:
    """Text of an error with its innermost line, such as `ValueError: too small (reward.py:12)`."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}"[:WHY_CHARS] + place


if __name__ == "__main__":
    main()
