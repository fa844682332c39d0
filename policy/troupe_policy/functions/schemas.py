"""`python -m troupe_policy.functions.schemas FILE [NAME …]`: the tools that a Python file defines, as JSON schemas.

Out: one line of JSON: {"tools": [{"name", "description", "parameters"}, …]}, or {"fault", "line"?}. The tools are the
functions NAME in the order of the arguments; without names, all public functions that the file itself defines, in the
file's order. Type hints give the types, the docstring (Google's form, with `Args:`) the descriptions; transformers
reads both, so that the schema is the one its chat templates expect. Invariant: what the file prints when it is imported
goes to stderr.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from types import ModuleType
from typing import Any


def schemas_in(file: str, names: list[str]) -> dict[str, object]:
    try:
        module = imported(file)
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, SystemExit included
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == os.path.abspath(file)]
        return {"fault": f"{type(error).__name__}: {error}", "line": frames[-1].lineno if frames else getattr(error, "lineno", None)}
    own = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__ and not n.startswith("_")]
    unknown = [name for name in names if name not in own]
    if unknown:
        return {"fault": f"defines no public function '{unknown[0]}'; its functions: {', '.join(own) or 'none'}"}
    if not own:
        return {"fault": "defines no function with a public name; a tool is a function with type hints and a docstring"}
    tools = []
    for name in names or own:
        function = getattr(module, name)
        try:
            tools.append(_schema(function))
        except Exception as error:  # noqa: BLE001 - transformers has errors of its own for hints and for docstrings
            reason = str(error).split("\n")[0]
            return {"fault": f"{name}: {reason}", "line": function.__code__.co_firstlineno}
    return {"tools": tools}


def imported(file: str) -> ModuleType:
    """Imports a file by its path, with its folder on sys.path and its stdout sent to stderr. Raises ImportError if the
    path does not name a Python file, and whatever the file itself raises.
    """
    path = os.path.abspath(file)
    sys.path.insert(0, os.path.dirname(path))
    name = "user_" + os.path.splitext(os.path.basename(path))[0]  # the prefix keeps it from hiding a library of that name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with contextlib.redirect_stdout(sys.stderr):
        spec.loader.exec_module(module)
    return module


def _schema(function: Any) -> dict[str, Any]:
    described = _transformers()(function)["function"]
    parameters = described.get("parameters") or {"type": "object", "properties": {}}
    return {"name": described["name"], "description": described["description"], "parameters": parameters}


def _transformers() -> Any:
    """Imports transformers' get_json_schema while torch is hidden: the function does not need torch, whose import takes
    seconds.
    """
    real = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *more: None if name == "torch" else real(name, *more)  # type: ignore[assignment]
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        from transformers.utils.chat_template_utils import get_json_schema  # late: only a file that was imported needs it
    finally:
        importlib.util.find_spec = real  # type: ignore[assignment]
    return get_json_schema


if __name__ == "__main__":
    print(json.dumps(schemas_in(sys.argv[1], sys.argv[2:])))
