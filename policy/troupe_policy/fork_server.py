"""`python -m troupe_policy.fork_server SOCKET --parent PID`: imports torch and transformers once (about 5 s of CPU
time), and forks the processes that need them.

In: connections to the unix socket SOCKET, two for each process. The first line of each is JSON: {"id": …, "stream":
"stdio", "argv": [module, argument …], "env": {…}, "cwd": …} on one, {"id": …, "stream": "stderr"} on the other. Out: a
process whose stdin and stdout are the stdio connection and whose stderr is the other; JSON lines on stdout: {"ready":
true, "pid": …, "python": sys.executable, "package": folder of the package, "namespaces": as Linux names them}, {"id":
…, "pid": …}, {"pid": …, "status": exit code, or minus the signal}. Invariants: this process has one thread and has
started nothing on a GPU, so it can fork safely, and so can a forked process that is a fork server itself. It ends with
its parent, and on Linux the processes that it forked end with it.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from .child_process import end_with_parent, show_command_line
from .library_settings import set_library_variables

# Modules that are imported before the first fork: those of every service that needs torch.
PRELOADED = ("torch", "troupe_policy.model.init_model", "troupe_policy.engine.service", "troupe_policy.trainer.service", "troupe_policy.server")
# Folder that holds the package troupe_policy.
PACKAGE_PATH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Upper bound on the first line of a connection, in bytes: environment variables can be long.
MAX_LINE_BYTES = 4 * 1024 * 1024
# Length that --title gives this process's command line, so that a forked process has room to write its own over it.
TITLE_BYTES = 4096


@dataclass
class Connection:
    """A connection whose first line has not been read whole."""

    socket: socket.socket
    line: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Request:
    """A connection, and the JSON object of its first line."""

    socket: socket.socket
    fields: dict[str, Any]


class ForkServer:
    """Forks processes on request, and reports their ends."""

    def __init__(self, listener: socket.socket, control: int) -> None:
        self.listener = listener
        self.control = control
        self.selector = selectors.DefaultSelector()
        self.half: dict[int, Request] = {}

    def serve(self) -> None:
        """Serves until stdin ends, which means that the parent is gone."""
        woken, wakes = socket.socketpair()
        for end in (woken, wakes, self.listener):
            end.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for source in (0, woken, self.listener):
            self.selector.register(source, selectors.EVENT_READ)
        self.report(ready=True, pid=os.getpid(), python=sys.executable, package=PACKAGE_PATH, namespaces=namespaces())
        while True:
            for key, _ in self.selector.select():
                if key.fileobj == 0:
                    if not os.read(0, 4096):
                        return
                elif key.fileobj is woken:
                    woken.recv(4096)
                    self.reap()
                elif key.fileobj is self.listener:
                    accepted, _ = self.listener.accept()
                    accepted.setblocking(False)
                    self.selector.register(accepted, selectors.EVENT_READ, Connection(accepted))
                else:
                    self.read(key.data)

    def read(self, connection: Connection) -> None:
        """Reads a connection's first line and nothing after it, because what follows is the process's stdin. Forks when
        the lines of both connections are read. Closes a connection that ends within its first line, or whose first line
        is too long or not a request.
        """
        try:
            peeked = connection.socket.recv(65536, socket.MSG_PEEK)
            at = peeked.find(b"\n")
            connection.line += connection.socket.recv(len(peeked) if at < 0 else at + 1)
        except ConnectionError:
            peeked, at = b"", -1
        if at < 0 and peeked and len(connection.line) <= MAX_LINE_BYTES:
            return
        self.selector.unregister(connection.socket)
        try:
            fields = json.loads(connection.line)
            name, _ = fields["id"], fields["stream"]
        except (ValueError, KeyError, TypeError):
            connection.socket.close()
            return
        request = Request(connection.socket, fields)
        other = self.half.pop(name, None)
        if other is None:
            self.half[name] = request
            return
        pair = {one.fields["stream"]: one for one in (request, other)}
        self.fork(pair["stdio"], pair["stderr"])

    def fork(self, stdio: Request, stderr: Request) -> None:
        """Forks one process. Does not return in the forked process."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            run(stdio, stderr, parent)
        stdio.socket.close()
        stderr.socket.close()
        self.report(id=stdio.fields["id"], pid=pid)

    def reap(self) -> None:
        """Reports the processes that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.report(pid=pid, status=os.waitstatus_to_exitcode(status))

    def report(self, **fields: object) -> None:
        os.write(self.control, (json.dumps(fields) + "\n").encode())


def run(stdio: Request, stderr: Request, parent: int) -> None:
    """Turns this forked child into the requested process, with its streams, environment, working directory and
    arguments in a session of its own, runs the module's `main`, and exits with the status that `main` returns.
    """
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for one in (stdio, stderr):
            one.socket.setblocking(True)
        for descriptor, one in ((0, stdio), (1, stdio), (2, stderr)):
            os.dup2(one.socket.fileno(), descriptor)
        os.closerange(3, max(256, stdio.socket.fileno(), stderr.socket.fileno()) + 1)
        end_with_parent(parent)
        asked = stdio.fields
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        module, *arguments = asked["argv"]
        sys.argv = [module, *arguments]
        show_command_line([sys.executable, "-m", module, *arguments])
        random.seed()
        status = importlib.import_module(module).main() or 0
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def namespaces() -> list[str]:
    """Names the namespaces of this process that a fork would share; empty where there is no /proc."""
    try:
        return [os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "net", "pid")]
    except OSError:
        return []


def main() -> int:
    parser = argparse.ArgumentParser(prog="troupe_policy.fork_server")
    parser.add_argument("socket", help="path of the unix socket to listen on")
    parser.add_argument("--parent", type=int, help="pid of the parent, whose death ends this process; not needed in a fork")
    parser.add_argument("--for", type=int, help="pid of the process that asked a shared fork server for this one; only for readers of `ps`")
    parser.add_argument("--title", default="", help=f"padding of {TITLE_BYTES} bytes, over which forked processes write their own command lines")
    given = parser.parse_args()
    end_with_parent(given.parent)
    set_library_variables()
    control = os.dup(1)
    os.dup2(2, 1)
    for name in PRELOADED:
        importlib.import_module(name)
    os.umask(0o077)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(given.socket)
    listener.listen(64)
    gc.collect()
    gc.freeze()
    ForkServer(listener, control).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
