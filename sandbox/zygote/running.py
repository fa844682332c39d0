"""Runs a call's code in a child of the zygote: as the interpreter runs a file, or as a notebook runs a cell.

in   the source as bytes
out  an exit code; `finish` first runs the handlers that the code registered for its exit, `pause` (for a session) none
Invariant: no name of the sandbox is among the code's names or in the traces that it prints; line numbers are the
code's own. All modules that these functions need are imported before the first fork.
"""

import _ast
import _sitebuiltins
import _thread
import builtins
import ctypes
import io
import linecache
import os
import random
import sys
import threading
import traceback
from atexit import _run_exitfuncs
from gc import collect, get_count, isenabled

SCRIPT, CELL = "main.py", "<cell>"
TRACE_FRAMES = 1000  # Upper bound on the frames of a printed traceback; the interpreter has the same.
MT19937_BYTES = 624 * 4
libc = ctypes.CDLL(None)
numpy_state = []  # Address of the words of numpy's generator, once find_numpy_state has found it.
seed_generator = super(random.Random, random._inst).seed  # as random.seed(None), but leaves `gauss_next`, which is None before the first draw
shutdown = threading._shutdown


def fresh_main(name=None):
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    if name:
        module.__file__ = name
    sys.modules["__main__"] = module
    sys.argv = [name or ""]
    return module


def prepare():
    """Prepares what a call needs, before the first fork: each page that a child writes costs it about 3 µs."""
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()


def reseed(seed):
    """Seeds random and numpy. 0 means the kernel's randomness; any other seed repeats the numbers, for a session's cell
    that is run again.
    """
    numpy_random = sys.modules.get("numpy.random.mtrand")
    if seed:
        random.seed(seed)
        if numpy_random is not None:
            numpy_random.seed((seed & 0xFFFFFFFF, seed >> 32))
        return
    seed_generator()
    if numpy_state:
        ctypes.memmove(numpy_state[0], os.urandom(MT19937_BYTES), MT19937_BYTES)
    elif numpy_random is not None:
        numpy_random.seed(None)


def find_numpy_state():
    """Finds the 624 words that numpy's global generator draws from. Writing random words there has the effect of its
    seed(None), but changes only a seventh as many memory pages. If numpy's generator has another layout than expected,
    it is seeded by seed(None).
    """
    mtrand = sys.modules.get("numpy.random.mtrand")
    if mtrand is None:
        return
    mtrand.seed(1)
    generator = mtrand.get_state(legacy=False)
    address = mtrand._rand._bit_generator.ctypes.state_address
    words = (ctypes.c_uint32 * 625).from_address(address)
    if generator["bit_generator"] == "MT19937" and list(words) == [*map(int, generator["state"]["key"]), generator["state"]["pos"]]:
        numpy_state.append(address)


def lines_of(source):
    """Returns the lines as Python counts them: only \\n, \\r and \\r\\n end a line, not U+2028 or a form feed."""
    lines = source.splitlines(True)
    if "\r" not in source and len(lines) == source.count("\n") + (source[-1:] not in ("", "\n")):
        return lines
    return io.StringIO(source, None).readlines()


def run_script(source, main):
    lines = lines_of(source.decode("utf-8", "replace"))
    linecache.cache[SCRIPT] = (len(source), None, lines, SCRIPT)
    try:
        exec(compile(source, SCRIPT, "exec", 0, True), main.__dict__)
        return 0
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:
        fault = error
    # The report runs outside the handler: inside, an error in it would name `fault` as its context.
    return report_safely(report_error, fault)


def run_cell(source, main):
    """Runs a cell; echoes its last expression unless its value is None or a semicolon follows it. Errors have the form
    of the released code of arXiv 2508.20722.
    """
    source = source.decode("utf-8", "replace")
    names = main.__dict__
    try:
        tree = compile(source, CELL, "exec", _ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and type(tree.body[-1]) is _ast.Expr:
            last = tree.body.pop()
        code = compile(tree, CELL, "exec", 0, True)
        echo = last and compile(_ast.Expression(last.value), CELL, "eval", 0, True)
        exec(code, names)
        if echo:
            value = eval(echo, names)
            if value is not None and not ends_with_semicolon(last, source):
                print(repr(value))
        return 0
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:
        return report_safely(report_cell_error, error, source)


def ends_with_semicolon(statement, source):
    """Returns True if a semicolon follows the cell's last expression, which then is not echoed."""
    if ";" not in source:
        return False
    lines = lines_of(source)[statement.end_lineno - 1 :]
    rest = lines[0].encode()[statement.end_col_offset :].decode() + "".join(lines[1:])
    return rest.lstrip(" \t\f\\\n").startswith(";")


def report_safely(report, error, *more):
    """Reports an error and returns the exit code. If the code's own objects raise during the report, only the type of
    the error is printed: a trace would show frames of the sandbox.
    """
    try:
        return report(error, *more)
    except BaseException:
        try:
            os.write(2, f"{type.__dict__['__name__'].__get__(type(error))}\n".encode())
        except BaseException:
            pass
        return 1


def report_error(error):
    """Passes an error to sys.excepthook if the code has set one; otherwise prints it as the interpreter does."""
    trace = error.__traceback__.tb_next  # Removes the sandbox's frame from the traceback.
    error.__traceback__ = trace
    hook = getattr(sys, "excepthook", None)
    if hook is not sys.__excepthook__:
        try:
            hook(type(error), error, trace)
            return 1
        except SystemExit as end:
            return exit_code(end)
        except BaseException as inner:
            fault = inner
        sys.stderr.write("Error in sys.excepthook:\n")
        print_trace(fault)
        sys.stderr.write("\nOriginal exception was:\n")
    traceback.print_exception(type(error), error, trace, limit=-TRACE_FRAMES)
    return 1


def print_trace(error):
    traceback.print_exception(type(error), error, error.__traceback__.tb_next, limit=-TRACE_FRAMES)


def report_cell_error(error, source):
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
    lines = lines_of(source)
    shown = "\n  " + lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ""
    report = "%s%s%s%s\n" % (type(error).__name__, where, ": " + message if message else "", shown)
    flush("stdout")
    sys.stderr.write(report)
    return 1


def exit_code(error):
    try:
        code = error.code
    except BaseException:
        code = error
    if code is None:
        return 0
    if issubclass(type(code), int):
        number = int.__index__(code)
        return number & 0xFF if -(2**63) <= number < 2**63 else 0xFF
    flush("stdout")
    try:
        sys.stderr.write(f"{str(code)}\n")
    except BaseException:
        pass
    return 1


def join_threads(code):
    """Joins the threads that an interpreter joins at its exit, except threads of a thread pool, which wait for work
    that never comes.
    """
    pools = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", ())
    own = threading.current_thread()
    while others := [t for t in threading.enumerate() if t is not own and not t.daemon and t not in pools]:
        for thread in others:
            code = guarded(thread.join, code)
    return code


def pause(code, shim, request):
    """Ends a session's cell and returns the descriptor of the next cell's code, with `request` filled. The caller
    continues in the next cell's process, which has no threads, timers or pending signals of this one.
    """
    if _thread._count():
        code = ignoring_errors(lambda: join_threads(code))
    ignoring_errors(shim.zygote_block_signals)
    flush_all()
    threads = _thread._count()
    if threads:
        ctypes.pythonapi.PyOS_BeforeFork()
    source = shim.zygote_pause(code, request)
    if threads:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return source


def ignoring_errors(step):
    """Repeats a step until it returns: a signal handler that the user's program installed may raise during it."""
    while True:
        try:
            return step()
        except BaseException:
            continue


def finish(code, main):
    """Ends the process as an interpreter would."""
    if _thread._count() or threading._threading_atexits or threading._shutdown is not shutdown:
        code = guarded(threading._shutdown, code)
    code = guarded(_run_exitfuncs, code)
    os._exit(end(code, main))


def end(code, main):
    """Ends a program and returns the exit code, but frees few objects: to free all of them would copy every page shared
    with the zygote.
    """
    code = guarded(main.__dict__.clear, code)
    # Collects cycles only if there are few objects to look through.
    if get_count()[0] < 10_000 and isenabled():
        code = guarded(collect, code)
    if not flush_all():
        code = code or 120
    return code


def guarded(step, code):
    try:
        step()
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:
        report_safely(print_trace, error)
        return code
    return code


def flush_all():
    """Flushes Python's and C's streams. Returns False if standard output could not be written."""
    written = flush("stdout")
    flush("stderr")
    libc.fflush(None)
    return written


def flush(name):
    try:
        stream = getattr(sys, name, None)
        if stream is not None:
            stream.flush()
        return True
    except BaseException:
        return False
