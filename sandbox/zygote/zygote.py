"""The zygote: one warm interpreter, pinned to a core, that forks an isolated child for every call.

in   argv: the settings (JSON, see zygoteSetup in open.ts); descriptor 0: request frames
out  descriptor 3: reply frames
Invariant: once it serves, this process runs no Python: the serve loop is shim/shim.c. Without a built shim (no C
compiler, or the option noShim) it is fallback.py, which speaks the same frames. The zygote ends when descriptor 0 ends
or its parent dies, and its children die with it.

It runs as `python3 -s -S` with an environment of its own (zygoteSetup in open.ts). Modules imported here are warm in
every child.
"""

import ctypes
import fcntl
import importlib
import io
import json
import mmap
import os
import resource
import sys

OURS = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != OURS]
NAMESPACES, SECCOMP, LANDLOCK, LIMITS = 1, 2, 4, 8
LAYERS = {"full": NAMESPACES | SECCOMP | LIMITS, "degraded": SECCOMP | LANDLOCK | LIMITS, "bare": 0}
CELL, PROCESSES, SESSION = 1, 2, 4
PR_SET_PDEATHSIG, SIGKILL, MADV_COLLAPSE, HUGE = 1, 9, 25, 1 << 21
PROT_READ, PROT_WRITE, PROT_EXEC = 1, 2, 4
CODE = 3  # descriptor on which a child finds its code
REQUEST, REPLY, HELD = 0, 3, 20  # HELD: lowest number of the zygote's own descriptors, once moved
MIB = 1 << 20
INTERPRETER_BYTES = 24 * MIB  # Address space of a bare interpreter, which counts towards a call's limit.

class Config(ctypes.Structure):
    """Mirror of struct config in shim/state.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in "input output proc self landlock layers uid runnable longest spare".split()),
        *((name, ctypes.c_uint64) for name in "base_bytes file_bytes".split()),
        *((name, ctypes.c_uint32) for name in "open_files tmp_mb tmp_mb_processes threads".split()),
        *((name, ctypes.c_char_p) for name in "filter filter_processes filter_session".split()),
        *((name, ctypes.c_uint32) for name in "length length_processes length_session".split()),
        ("pid_at", ctypes.c_uint32 * 4),
        ("uid_map", ctypes.c_char * 32),
        ("gid_map", ctypes.c_char * 32),
        ("scratch", ctypes.c_char * 64),
    ]


class Request(ctypes.Structure):
    """Mirror of struct request in shim/state.h: the head of a frame. All numbers are 32 bits, little-endian."""

    _fields_ = [
        (name, ctypes.c_uint32)
        for name in "bytes kind id flags timeout_ms processes memory_mb max_output state parent seed seed_high "
        "code_bytes stdin_bytes".split()
    ]


def import_own(name):
    """Imports a module of this folder and removes its name, so that a call's code cannot import it."""
    sys.path.insert(0, OURS)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(OURS)
        sys.modules.pop(name, None)


class Arenas(ctypes.Structure):
    """Mirror of CPython's PyObjectArenaAllocator."""

    _fields_ = [("context", ctypes.c_void_p), ("take", ctypes.c_void_p), ("give", ctypes.c_void_p)]


def main():
    settings = json.loads(sys.argv[1])
    os.environ.pop("LD_BIND_NOW", None)
    shim = ctypes.PyDLL(settings["shim"]) if settings["shim"] else None
    if shim:
        functions = (shim.zygote_arena, shim.zygote_arena_free)
        # ctypes looks these functions up once, here, for all children.
        _ = (shim.zygote_block_signals, shim.zygote_pause)
        arenas = Arenas(None, *(ctypes.cast(function, ctypes.c_void_p) for function in functions))
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(arenas))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != settings["parent"]:
        os._exit(1)  # The parent process died before prctl took effect.
    # Makes a process session for the zygote and its calls: with sched_autogroup the kernel divides a core among
    # sessions first, and nice values count only among the processes of one session.
    os.setsid()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[settings["core"] % len(cores)]})
    own = set(sys.path)
    sys.path += [path for path in settings["packages"] if path not in own]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    held = move_descriptors()
    running, confine, filters, warming = map(import_own, ("running", "confine", "filter", "warming"))
    server = shim or import_own("fallback")
    try:
        confine.prefer_to_be_killed()
        config, user = isolate(settings, held, confine, filters)
        warming.warm_up(settings["preload"], running, lambda *call: rehearse(running, *call))
        confine.drop(user)
        main_of_scripts = running.fresh_main(running.SCRIPT)  # made once here, so that no child has to make its own
        prepare_memory(config, held, shim)
    except BaseException as error:
        os.write(held["errors"], f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    request = Request()
    if server.zygote_serve(ctypes.byref(config), ctypes.byref(request)) < 0:
        os._exit(0)
    try:
        run_child(running, request, server, main_of_scripts)
    finally:
        os._exit(1)  # run_child exits by itself; an exception here would print a trace with the zygote's frames


def move_descriptors():
    """Moves the zygote's descriptors away from 0 to 3, and puts memory files there, as the children have them."""
    held = {"input": REQUEST, "output": REPLY, "errors": 2, "proc": os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)}
    for n, (name, fd) in enumerate(held.items()):
        os.dup2(fd, HELD + n, inheritable=False)
        held[name] = HELD + n
    for fd in range(4):  # Descriptor 3 is included: a child finds its code there.
        os.dup2(os.memfd_create("stream"), fd)
    os.closerange(4, HELD)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8", "surrogateescape")
    sys.stdout = sys.__stdout__ = writer(1, "<stdout>", line_buffering=False)
    sys.stderr = sys.__stderr__ = writer(2, "<stderr>", line_buffering=True)
    held["self"] = fcntl.fcntl(os.pidfd_open(os.getpid()), fcntl.F_DUPFD_CLOEXEC, HELD + len(held))
    os.close(4)  # 4 is the number under which the kernel had opened the pidfd.
    return held


def writer(fd, name, line_buffering):
    """Returns a text stream that writes half of a surrogate pair, which UTF-8 cannot encode, as an escape."""
    raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    stream = io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=line_buffering)
    stream.mode = "w"
    return stream


def isolate(settings, held, confine, filters):
    level = settings["level"]
    config = Config(**{name: held[name] for name in ("input", "output", "proc", "self")})
    config.layers, config.landlock, config.uid = LAYERS[level], -1, -1
    for name in ("open_files", "tmp_mb", "tmp_mb_processes", "threads", "runnable", "longest", "file_bytes"):
        setattr(config, name, settings[name])
    config.scratch = confine.SCRATCH.encode()
    user = os.getuid()
    if config.layers & LANDLOCK:
        config.landlock = confine.landlock(settings["readable"])
        if os.getuid() == 0 and confine.reachable(settings["readable"], settings["uid"]):
            config.uid = settings["uid"]
    if config.layers & NAMESPACES:
        user = confine.enter(settings, held["proc"])
        config.uid_map = config.gid_map = b"%d %d 1" % (confine.INSIDE, user)
        move_imports(lambda path: confine.path_inside(path, settings["readable"]))
    if config.layers & SECCOMP:
        degraded = level == "degraded"
        plain = filters.build(degraded=degraded)
        with_processes = filters.build(processes=True) if not degraded else plain
        session = filters.build(session=True) if not degraded else plain
        config.filter, config.length = plain.code, plain.length
        config.filter_processes, config.length_processes = with_processes.code, with_processes.length
        config.filter_session, config.length_session = session.code, session.length
        config.pid_at = (ctypes.c_uint32 * 4)(*plain.pid_at)
    return config, user


def move_imports(path_inside):
    """Points sys.path and loaded packages to the paths that their directories have in the new root."""
    sys.path[:] = map(path_inside, sys.path)
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "__path__", None), list):
            module.__path__[:] = map(path_inside, module.__path__)


def prepare_memory(config, held, shim):
    """Makes forks cheap, as the last step before serving. Garbage of the warm-up is collected and the rest frozen. Memory
    is moved into huge pages, so that a fork copies a page table a tenth as long. Each library becomes two mappings
    instead of five, since a fork copies each mapping: its head and constants get the rights of its code, its table of
    addresses those of its data."""
    import gc

    os.close(held["errors"])
    gc.collect()
    if shim:
        shim.zygote_arenas_end()
    with open(os.open("self/maps", os.O_RDONLY, dir_fd=config.proc)) as maps:
        spans = [line.split() for line in maps]
    libc = ctypes.CDLL(None)
    for n, (where, access, _, _, inode, *name) in enumerate(spans):
        start, end = (int(text, 16) for text in where.split("-"))
        if access == "rw-p" and inode == "0" and (not name or name == ["[heap]"]):
            start, end = -(-start // HUGE) * HUGE, end // HUGE * HUGE
            if end > start:
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)
        elif access == "r--p" and inode != "0":
            joined = PROT_WRITE if spans[n + 1][1] == "rw-p" and spans[n + 1][4] == inode else PROT_EXEC
            libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), PROT_READ | joined)
    try:
        with open(os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=config.proc), "w") as file:
            file.write("800")  # When memory runs short, the kernel kills the largest of these processes first.
    except OSError:
        pass
    with open(os.open("self/statm", os.O_RDONLY, dir_fd=config.proc)) as file:
        size = int(file.read().split()[0]) * mmap.PAGESIZE
    config.base_bytes = max(size - INTERPRETER_BYTES, 0)
    # Garbage that is left now, and objects that are not frozen, would be collected by each child at its end.
    del libc
    gc.collect()
    gc.freeze()


def run_child(running, request, shim, main_of_scripts):
    """In a child: runs the code and ends as an interpreter would. A session's cell pauses instead; the next iteration runs
    in its fork, as the next cell."""
    is_cell = request.flags & CELL
    main = running.fresh_main() if is_cell else main_of_scripts
    run = running.run_cell if is_cell else running.run_script
    descriptor = CODE
    while True:
        code = run_code(running, request, run, main, descriptor)
        if not request.flags & SESSION:
            running.finish(code, main)
        descriptor = running.pause(code, shim, ctypes.byref(request))
        sys.stdin = sys.__stdin__ = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8", "surrogateescape")


def run_code(running, request, run, main, descriptor):
    source = receive(descriptor, request.code_bytes)
    running.reseed(request.seed | request.seed_high << 32)
    return run(source, main)


def rehearse(running, source, run, name):
    """Runs a program in the zygote as run_child does in a child, except for what the interpreter does at its exit."""
    descriptor = os.memfd_create("code")
    os.write(descriptor, source)
    request = Request(code_bytes=len(source))
    main = running.fresh_main(name)
    running.end(run_code(running, request, run, main, descriptor), main)


def receive(descriptor, size):
    source = os.pread(descriptor, size, 0)
    os.close(descriptor)
    return source


main()
