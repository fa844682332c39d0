"""`python in_file.py FILE FUNCTION`: checks, without running FILE, that it defines FUNCTION for calls with two
arguments.

Out: one line of JSON: {"fault", "line"?} with the first problem, or {} if there is none. Checks the syntax, that this
interpreter finds the packages that statements of the top level import, that the top level defines FUNCTION, and, for a
`def` of the top level without decorators, that two positional arguments fit it. Invariant: no line of FILE runs; uses
only the standard library, so that any interpreter can run this script by its path.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import symtable
import sys
import warnings


def fault_of(file: str, function: str, arguments: int) -> dict[str, object]:
    """Returns {"fault", "line"?}, or {} for a file without a fault. arguments: number of positional arguments that a
    caller of the function passes.
    """
    try:
        with open(file, "rb") as opened:
            source = opened.read()
    except OSError as error:
        return {"fault": f"cannot be read: {error.strerror}"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, file)
            compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return {"fault": f"{type(error).__name__}: {getattr(error, 'msg', error)}", "line": getattr(error, "lineno", None)}
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    for node in tree.body:
        for name in _imported(node):
            if not _is_there(name):
                return {"fault": f"imports '{name}', which {sys.executable} cannot find", "line": node.lineno}
    first = function.split(".")[0]
    if not _may_define(tree, source, file, first):
        known = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        return {"fault": f"has no function '{function}'; its functions: {', '.join(known) or 'none'}"}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == function:
            return _unfit(node, arguments)
    return {}


def _unfit(node: ast.FunctionDef | ast.AsyncFunctionDef, given: int) -> dict[str, object]:
    a = node.args
    most = len(a.posonlyargs) + len(a.args)
    least = most - len(a.defaults)
    unset = [arg.arg for arg, default in zip(a.kwonlyargs, a.kw_defaults) if default is None]
    if node.decorator_list:
        return {}
    signature = f"{node.name}({ast.unparse(a)})"
    if given < least or (given > most and a.vararg is None):
        return {"fault": f"{signature} cannot be called with {given} positional arguments (answer, task)", "line": node.lineno}
    if unset:
        what = f"keyword-only {', '.join(repr(name) for name in unset)} without a default"
        return {"fault": f"{signature} has {what}; the call passes only answer and task, by position", "line": node.lineno}
    return {}


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module]
    return []


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name.split(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _may_define(tree: ast.Module, source: bytes, file: str, name: str) -> bool:
    """True if a statement of the top level, in a block of any depth, binds the name, or imports names that are not known
    before the file runs.
    """
    if any(isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names) for node in ast.walk(tree)):
        return True
    top = symtable.symtable(source, file, "exec")
    return any(symbol.get_name() == name and (symbol.is_assigned() or symbol.is_imported()) for symbol in top.get_symbols())


if __name__ == "__main__":
    print(json.dumps(fault_of(sys.argv[1], sys.argv[2], 2)))
