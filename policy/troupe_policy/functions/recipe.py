"""`python -m troupe_policy.functions.recipe FILE`: the recipe that a Python file defines, as JSON.

In: a file whose variable `recipe` is a dict with the fields of a YAML recipe. A function that stands for a tool or for
the reward is replaced by its name and FILE: `"tools": [price]` becomes `tools: {names: [], functions: {file, names:
[price]}}`, `"reward": reward` becomes `reward: {name: python, file, function: reward}`. Out: one line of JSON:
{"recipe": {…}}, or {"fault", "line"?}.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from typing import Any

from .schemas import imported


def recipe_in(file: str) -> dict[str, Any]:
    path = os.path.abspath(file)
    try:
        module = imported(path)
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, SystemExit included
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        return {"fault": f"{type(error).__name__}: {error}", "line": frames[-1].lineno if frames else getattr(error, "lineno", None)}
    recipe = getattr(module, "recipe", None)
    if not isinstance(recipe, dict):
        return {"fault": "has no dict named 'recipe'"}
    whole = dict(recipe)
    tools, reward = whole.get("tools"), whole.get("reward")
    if isinstance(tools, list):
        whole["tools"] = tools = {"names": [], "functions": tools}
    if isinstance(tools, dict) and isinstance(tools.get("functions"), list):
        whole["tools"] = {**tools, "functions": {"file": path, "names": [_name(one) for one in tools["functions"]]}}
    if inspect.isfunction(reward):
        whole["reward"] = {"name": "python", "file": path, "function": reward.__name__}
    elif isinstance(reward, dict) and inspect.isfunction(reward.get("function")):
        whole["reward"] = {"name": "python", "file": path, **reward, "function": reward["function"].__name__}
    try:
        json.dumps(whole)
    except TypeError as error:
        return {"fault": f"recipe: {error}; use values that JSON has, and functions only in 'tools' and 'reward'"}
    return {"recipe": whole}


def _name(tool: Any) -> str:
    return tool if isinstance(tool, str) else tool.__name__


if __name__ == "__main__":
    # On a line of its own, whatever the file has printed.
    print("\n" + json.dumps(recipe_in(sys.argv[1])))
