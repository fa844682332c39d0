"""Running a call's code in a child of the zygote, as the interpreter would run a file or a notebook would run a cell.

in   the source as bytes      out  an exit code, after what the code registered for its end has run
Invariant: nothing of ours is among the code's names or in the traces that it prints; line numbers are those of the code.
Everything that these functions need is imported before the first fork.
"""

import _ast
import _sitebuiltins
import atexit
import builtins
import gc
import linecache
import os
import random
import sys
import threading
import traceback

SCRIPT, CELL = "main.py", "<cell>"
TRACE_FRAMES = 1000  # as many as the interpreter itself prints


def fresh_main(name=None):
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    if name:
        module.__file__ = name
    sys.modules["__main__"] = module
    sys.argv = [name or ""]
    return module


def prepare():
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()


def reseed(seed):
    """seed: 0 takes the kernel's; any other makes the same numbers again, for a session's cell that is run again."""
    random.seed(seed or None)
    numpy_random = sys.modules.get("numpy.random.mtrand")
    if numpy_random is not None:
        numpy_random.seed((seed & 0xFFFFFFFF, seed >> 32) if seed else None)


def run_script(source, main):
    lines = source.decode("utf-8", "replace").splitlines(True)
    linecache.cache[SCRIPT] = (len(source), None, lines, SCRIPT)
    try:
        exec(compile(source, SCRIPT, "exec", 0, True), main.__dict__)
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:
        trace = error.__traceback__.tb_next  # without this frame
        error.__traceback__ = trace
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(type(error), error, trace, limit=-TRACE_FRAMES)
        else:
            sys.excepthook(type(error), error, trace)
        return 1
    return 0


def run_cell(source, main):
    """Echoes the last expression as IPython does. Source of the form of errors: the release of arXiv 2508.20722."""
    source = source.decode("utf-8", "replace")
    names = main.__dict__
    try:
        tree = compile(source, CELL, "exec", _ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and type(tree.body[-1]) is _ast.Expr:
            last = _ast.Expression(tree.body.pop().value)
        code = compile(tree, CELL, "exec", 0, True)
        echo = last and compile(last, CELL, "eval", 0, True)
        exec(code, names)
        if echo:
            value = eval(echo, names)
            if value is not None:
                print(repr(value))
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:
        write_report(error, source)
        return 1
    return 0


def write_report(error, source):
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == CELL:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
    except BaseException:
        message = ""
    where = "" if line is None else " at line %d" % line
    lines = source.splitlines()
    shown = "\n  " + lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
    report = "%s%s%s%s\n" % (type(error).__name__, where, ": " + message if message else "", shown)
    flush(sys.stdout)
    sys.stderr.write(report)


def exit_code(error):
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    flush(sys.stdout)
    try:
        sys.stderr.write(f"{code}\n")
    except BaseException:
        pass
    return 1


def finish(code, main):
    """The end of an interpreter, without taking it apart: that would copy every page it shares with the zygote."""
    code = guarded(threading._shutdown, code)
    code = guarded(atexit._run_exitfuncs, code)
    code = guarded(main.__dict__.clear, code)
    # What is in a circle is collected only where there is little to look through.
    if gc.get_count()[0] < 10_000 and gc.isenabled():
        code = guarded(gc.collect, code)
    if not flush(sys.stdout):
        code = code or 120
    flush(sys.stderr)
    os._exit(code)


def guarded(step, code):
    try:
        step()
    except SystemExit as error:
        return exit_code(error)
    except BaseException:
        guarded_print()
        return code
    return code


def guarded_print():
    try:
        traceback.print_exc()
    except BaseException:
        pass


def flush(stream):
    try:
        stream.flush()
        return True
    except BaseException:
        return stream is None
