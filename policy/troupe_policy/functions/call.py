"""Calls a tool that is a Python function once, in the sandbox or in an interpreter outside it.

In: one JSON object on stdin, {file, source, function, arguments}. Out: the function's value on stdout: a string as it
is, None as nothing, any other value as JSON; on stderr what the function printed. If the source or the function raises,
or the value cannot be written as JSON, stderr ends with the error, with its line if that is in the file, and the exit
code is 1. Invariant: uses only the standard library, and takes the source from stdin, because the user's files are not
in the sandbox.
"""

import asyncio
import contextlib
import inspect
import io
import json
import os
import sys
import traceback
import types


def called(file, source, function, arguments):
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    module = types.ModuleType("tools")
    module.__file__ = file
    sys.modules["tools"] = module
    with contextlib.redirect_stdout(io.StringIO()):  # drops what the file prints at import
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    value = getattr(module, function)(**arguments)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def main():
    asked = json.loads(sys.stdin.read())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            value = called(asked["file"], asked["source"], asked["function"], asked["arguments"])
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    except (Exception, SystemExit) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == asked["file"]]
        place = f" ({os.path.basename(asked['file'])}:{frames[-1].lineno})" if frames else ""
        print(f"{type(error).__name__}: {error}{place}", file=sys.stderr)
        sys.exit(1)
    sys.stdout.write(text)


main()
