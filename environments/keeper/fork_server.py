"""Fork server of keepers: has loaded the keeper's modules and filter, and forks a keeper for each environment.

in   standard input, JSON lines: {"start": configuration file} or {"stop": name}; its end means that Troupe's process is gone
out  standard output, JSON lines: {"ready": name, "pid": …} or {"failed": name, "reason": …}, and {"ended": name} after both
Invariant: keepers share this process's standard input and output. So the end of Troupe's process reaches every keeper,
and standard output ends when this process and all its keepers have exited.
"""

import gc
import json
import os
import select
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cgroup  # noqa: E402
import keeper  # noqa: E402
import kernel  # noqa: E402


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
            with open(request["start"]) as file:
                config = json.load(file)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                os.close(woken_read)
                os.close(woken_write)
                run(config, install_filter)
            keepers[pid] = config["name"]


def run(config, install_filter):
    """In the child: is a keeper until its environment is removed. Never returns."""
    code = 1
    try:
        code = keeper.run(config, install_filter)
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


main()
