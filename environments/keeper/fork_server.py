"""Fork server: loads the modules and the seccomp filter of keepers once, and forks a keeper for each environment. A
keeper is the process that holds one environment.

in   standard input, JSON lines: {"start": configuration file, "name": name} or {"stop": name}; its end means that Troupe's
     process is gone
out  standard output, JSON lines: {"ready": name, "pid": …} or {"failed": name, "reason": …}, and later {"ended": name}
Invariant: keepers share this process's standard input and output. So the end of Troupe's process reaches every keeper,
and standard output ends when this process and all its keepers have exited. A request that fails ends no other
environment. All run from a copy of the interpreter in memory that nothing can write: a process of an environment that
opens their /proc/PID/exe gets that copy, not the machine's file.
"""

import fcntl
import gc
import json
import os
import select
import signal
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cgroup  # noqa: E402
import keeper  # noqa: E402
import kernel  # noqa: E402


SEALED = "troupe-sealed"


def seal():
    """Runs this program again from a sealed copy of the interpreter in memory."""
    fd = os.memfd_create("python", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(sys.executable, "rb") as source:
        while os.sendfile(fd, source.fileno(), None, 1 << 30):
            pass
    F_ADD_SEALS, SEAL, SHRINK, GROW, WRITE = 1033, 1, 2, 4, 8
    fcntl.fcntl(fd, F_ADD_SEALS, SEAL | SHRINK | GROW | WRITE)
    os.execve(fd, [sys.executable, "-I", "-S", "-B", os.path.abspath(__file__), SEALED], dict(os.environ))


def main():
    os.closerange(3, 4096)  # descriptors that Troupe's process inherited from its own parent
    woken_read, woken_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken_write, warn_on_full_buffer=False)
    install_filter = kernel.load_filter()
    cgroup.hierarchies()
    # Objects that the collector does not touch stay in memory that all keepers share.
    gc.freeze()
    keepers, text = {}, b""
    while True:
        ready, _, _ = select.select([0, woken_read], [], [])
        if woken_read in ready:
            os.read(woken_read, 4096)
            for name in ended(keepers):
                keeper.say({"ended": name})
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "stop" in request:
                for pid, name in keepers.items():
                    if name == request["stop"]:
                        os.kill(pid, signal.SIGTERM)
                continue
            name = request["name"]
            try:
                with open(request["start"]) as file:
                    config = json.load(file)
                pid = os.fork()
            except Exception as error:
                keeper.say({"failed": name, "reason": f"{type(error).__name__}: {error}"})
                keeper.say({"ended": name})
                continue
            if pid == 0:
                signal.set_wakeup_fd(-1)
                os.close(woken_read)
                os.close(woken_write)
                run(config, install_filter)
            keepers[pid] = name


def run(config, install_filter):
    """In the child: is a keeper until its environment is removed. Never returns."""
    code = 1
    try:
        code = keeper.run(config, install_filter)
    except BaseException:
        # Each line names the environment: all keepers share standard error.
        lines = traceback.format_exc().splitlines()
        os.write(2, "".join(f"{config['name']}: {line}\n" for line in lines).encode(errors="replace"))
    finally:
        os._exit(code)


def ended(keepers):
    """Forgets the keepers that have exited, and returns the names of their environments."""
    names = []
    while keepers:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        names.append(keepers.pop(pid, None))
    return [name for name in names if name is not None]


if SEALED in sys.argv:
    main()
else:
    seal()
