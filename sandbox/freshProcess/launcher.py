"""Launcher: one interpreter for one call. It forks the code under limits, waits, cleans up, and reports.

in   argv: directories and limits (see `Call`); descriptor 3: the code, `code_bytes` long
out  on descriptor 3, as lines: `begun PID`, then `done WAITSTATUS TIMEDOUT WALL_US CPU_US MAXRSS_KIB`, or
     `failed WHY`
Invariant: the report comes from the kernel (wait4, getrusage) and this process's clock, never from the code. The child
writes `begun` before it runs the code, which may kill or stop the launcher: otherwise the pool would take such a call
for one that did not begin. Before the launcher writes `done`, it kills and reaps every process that the code started,
for at most REAP_SECONDS. SIGTERM (from the pool) and SIGHUP (from the kernel, when the thread that started the launcher
has died) mean: end the call now.

It runs as `python3 -I -S` (site's .pth files may cost more than the call) and imports only built-in or tiny modules.
"""

import _signal as signal  # The signal module builds enums, which costs as much as the fork; _signal does not.
import os
import resource
import sys
import time

CONTROL = 3
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
CAPABILITY_VERSION_3 = 0x20080522
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REAP_SECONDS = 2.0
ORPHAN_SECONDS = 0.3


class Call:
    """The launcher's arguments. `processes`: limit on the processes and threads of the whole user (RLIMIT_NPROC); -1
    means no limit.
    """

    def __init__(self, argv):
        self.parent = int(argv[1])
        self.base = argv[2]
        self.directory = argv[3]
        self.code_bytes = int(argv[4])
        self.timeout = int(argv[5]) / 1000
        self.memory_bytes = int(argv[6])
        self.file_bytes = int(argv[7])
        self.open_files = int(argv[8])
        self.processes = int(argv[9])
        self.packages = argv[10].split(os.pathsep) if argv[10] else []


def libc():
    """Returns a function that calls C functions by name. It uses _ctypes if it can, which loads in a third of the time
    of ctypes.
    """
    try:
        import _ctypes

        handle = _ctypes.dlopen(None, 2)
        return lambda name, *arguments: _ctypes.call_function(_ctypes.dlsym(handle, name), arguments)
    except (ImportError, AttributeError, OSError):
        import ctypes

        library = ctypes.CDLL(None)
        return lambda name, *arguments: getattr(library, name)(*arguments)


def main():
    call = Call(sys.argv)
    # These signals are blocked from here on and read by sigtimedwait, so that no handler interrupts another step.
    awaited = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    c = libc()
    c("prctl", PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    if os.getppid() != call.parent:
        os._exit(1)  # The parent process died before prctl took effect, so no signal will report its death.
    c("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Makes this process undumpable: a child of the same user cannot trace it or open its descriptors.
    c("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        os.mkdir(call.directory, 0o700)
        descriptor = os.open(call.directory, DIRECTORY)
        launcher = os.getpid()
        started = time.monotonic()
        child = os.fork()
    except OSError as error:
        os.write(CONTROL, f"failed {error}\n".encode())
        os._exit(1)
    if child == 0:
        run(call, c, launcher, awaited)  # The child returns from main to the interpreter's own shutdown.
        return
    ending = wait(child, started + call.timeout, awaited)
    status = end(child)
    wall = time.monotonic() - started
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    line = f"done {status} {int(ending == 'timeout')} {int(wall * 1e6)} {int(cpu * 1e6)} {usage.ru_maxrss}\n"
    try:
        os.write(CONTROL, line.encode())
    except OSError:
        pass  # The worker thread that reads the report has died.
    remove(call.directory, descriptor)
    if ending == "orphaned" and parent_dies(call.parent):
        # The pool's process has died, so the launcher removes the pool's directory.
        remove(call.base, os.open(call.base, DIRECTORY))
    os._exit(0)


def wait(child, deadline, awaited):
    """Waits until the child exits ('exited'), the deadline passes ('timeout'), or SIGTERM ('asked') or SIGHUP
    ('orphaned') comes.
    """
    while True:
        # WNOWAIT leaves the child a zombie, so its pid stays in use until its group has been killed.
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return "exited"
        left = deadline - time.monotonic()
        if left <= 0:
            return "timeout"
        got = signal.sigtimedwait(awaited, left)
        if got is not None and got.si_signo != signal.SIGCHLD:
            return "asked" if got.si_signo == signal.SIGTERM else "orphaned"


def parent_dies(parent):
    """Returns True if the parent process ended, and not only one of its threads. Waits, as the signal may come before
    the process has ended.
    """
    until = time.monotonic() + ORPHAN_SECONDS
    while os.getppid() == parent and time.monotonic() < until:
        time.sleep(0.01)
    return os.getppid() != parent


def end(child):
    """Kills the child, its group and, for at most REAP_SECONDS, the orphans that this process inherited. Returns the
    child's wait status.
    """
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
    status = os.wait4(child, 0)[1]
    until = time.monotonic() + REAP_SECONDS
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for orphan in children():
                    os.kill(orphan, signal.SIGKILL)
                time.sleep(0.001)
        except ChildProcessError:
            break
        except ProcessLookupError:
            continue
    return status


def children():
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and int(open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[1]) == me:
                    found.append(int(name))
            except OSError:
                continue
        return found


def remove(directory, descriptor):
    """Removes a directory tree of any depth. It walks by chdir from an open directory, so that no path becomes too long
    and no symbolic link of the code is followed.
    """
    try:
        os.fchmod(descriptor, 0o700)
        os.fchdir(descriptor)
        above = []
        while True:
            inner = empty()
            if inner is not None:
                os.chmod(inner, 0o700)
                os.chdir(inner)
                above.append(inner)
            elif above:
                os.chdir("..")
                os.rmdir(above.pop())
            else:
                break
        os.chdir("/")
        os.rmdir(directory)
    except OSError:
        pass  # The pool removes the remaining files when it closes.


def empty():
    """Unlinks files of the current directory. Stops at the first subdirectory and returns its name, else None."""
    with os.scandir(".") as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name)
    return None


def run(call, c, launcher, awaited):
    """In the child: reads the code, sets the limits, drops root's capabilities, reports that the code begins, closes
    descriptors 3 to 4095, then runs the code.
    """
    os.setsid()
    c("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != launcher:
        os._exit(1)
    os.umask(0o077)
    os.chdir(call.directory)
    source = receive(call.code_bytes)
    with open("main.py", "wb") as file:  # The source is written to a file, so that a traceback shows the user's lines.
        file.write(source)
    confine(call, c)
    os.write(CONTROL, b"begun %d\n" % os.getpid())
    os.closerange(CONTROL, 4096)
    expose(c)
    sys.path[:] = [path for path in sys.path if path not in call.packages] + call.packages
    signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
    limit(resource.RLIMIT_AS, call.memory_bytes)
    execute(source)


def confine(call, c):
    limit(resource.RLIMIT_CPU, int(call.timeout) + 2)
    limit(resource.RLIMIT_FSIZE, call.file_bytes)
    limit(resource.RLIMIT_NOFILE, call.open_files)
    limit(resource.RLIMIT_CORE, 0)
    if call.processes >= 0:
        limit(resource.RLIMIT_NPROC, call.processes)
    c("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.geteuid() == 0:  # Without capabilities, root cannot trace the launcher, mount, or raise a limit.
        c("capset", CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4), bytes(24))


def expose(c):
    """Gives this process its /proc files, which belong to root until then. From here on, code of the same user can trace
    it: it must have closed CONTROL.
    """
    c("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # When memory runs short, the kernel kills this process first.
    except OSError:
        pass


def limit(kind, most):
    """Lowers a resource's soft and hard limit to `most`, or to the present hard limit if that is lower."""
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


def receive(size):
    parts = []
    while size > 0:
        part = os.read(CONTROL, min(size, 1 << 20))
        if not part:
            os._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def execute(source):
    """Runs the source as `__main__`, as the interpreter would run a file."""
    import _sitebuiltins
    import builtins

    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    module.__file__ = "main.py"
    sys.modules["__main__"] = module
    sys.argv = ["main.py"]
    try:
        exec(compile(source, "main.py", "exec", 0, True), module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__.tb_next  # Removes this function's frame from the traceback.
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        sys.exit(1)


main()
