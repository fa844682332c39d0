"""Keeper: holds one environment and serves it on a Unix socket: commands, files, snapshots.

in   a configuration; standard input, the lifeline: its end means that Troupe's process is gone. All keepers share it
     with the fork server (fork_server.py), its only reader
out  one line on standard output, `{"ready": …}` or `{"failed": …}`; one answer per connection on the socket `s`
Invariant: the overlay is mounted in this process's own mount namespace, so it ends with the last process that uses it.
When the lifeline ends or SIGTERM comes, everything is killed and removed before this process exits. What a `kill -9` of
this process leaves is listed in the directory (`first.pid`, `cgroups`), where the sweeper finds it.
"""

import json
import os
import select
import signal
import socket
import time

import cgroup
import commands
import disk
import first
import forward
import kernel
import snapshot
import transfer
import tree
from inside import Inside
from loop import Loop
from messages import Request, answer

MOST_CONNECTIONS = 64


class Keeper:
    def __init__(self, config, install_filter):
        self.config = config
        self.directory = config["directory"]
        self.user_namespace = os.geteuid() != 0
        self.host_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.install_filter = install_filter
        self.cgroups = []
        self.inside = None
        self.forwarder = None
        # In a user namespace a process cannot return to the outer PID namespace, so there a fork serves each command.
        self.own_pids = None if self.user_namespace else os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.loop, self.is_ended = Loop(), False
        self.handlers, self.commands, self.arriving = set(), set(), set()

    def mount(self):
        """Mounts the environment's files at `merged`, visible only to this process and its children."""
        kernel.unshare(kernel.NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
        os.chdir(self.directory)
        for name in ("upper", "work", "merged"):
            os.makedirs(name, exist_ok=True)
        os.chmod("upper", 0o755)
        upper, work = "upper", "work"
        if self.config["limits"].get("storageMb"):
            upper, work = disk.limit(self.config["limits"]["storageMb"])
            os.chmod("upper", 0o755)
        lower = ":".join(path.replace(":", "\\:") for path in self.config["lower"])
        # In a user namespace there are no trusted.* attributes, without which overlayfs refuses the other options.
        without = "userxattr" if self.user_namespace else "index=off,metacopy=off,redirect_dir=off"
        options = f"lowerdir={lower},upperdir={upper},workdir={work},{without}"
        flags = kernel.MS_NODEV
        try:
            # Without `volatile` each umount waits until all is on the disk, in vain: nobody mounts these files again.
            kernel.mount("overlay", "merged", "overlay", flags, options + ",volatile")
        except OSError:
            kernel.mount("overlay", "merged", "overlay", flags, options)

    def limit(self):
        """Makes cgroups that enforce the environment's limits. For `oci`, a limit that no cgroup holds is an error."""
        paths = self.config["cgroups"] = cgroup.create(self.config["name"], self.config["limits"])
        with open("cgroups", "w") as file:
            file.write(json.dumps(paths))
        missing = cgroup.missing(paths, self.config["limits"])
        if missing and self.config["kind"] == "oci":
            raise RuntimeError(f"no writable cgroup can hold the limits {', '.join(missing)}; {cgroup.CURE}")
        self.cgroups = [os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in paths]

    def start(self):
        """Starts the environment's first process, whose death ends the environment, and the forwarder if it has one."""
        pid = first.start(self.config, self.cgroups, self.install_filter)
        pidfd = os.pidfd_open(pid)
        with open("first.pid", "w") as file:
            file.write(f"{pid} {first.started_at(self.host_proc, pid)}")
        if self.inside is not None:
            os.close(self.inside.pidfd)
        self.inside = Inside(pid, pidfd, self.cgroups, self.host_proc, self.install_filter, self.user_namespace, self.own_pids)
        if self.config.get("proxy"):
            self.end_forwarder()
            self.forwarder = forward.start(self.inside)

    def end_forwarder(self):
        """Ends the running forwarder, if there is one: a restart makes a new network namespace."""
        if self.forwarder is not None:
            pid, self.forwarder = self.forwarder, None
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def kill(self):
        """Kills every process of the environment, and waits for up to 10 s until they are dead; its files stay."""
        if self.inside is None:
            return
        kernel.signal_pidfd(self.inside.pidfd, signal.SIGKILL)
        # The kernel reports the first process's death when all others of its PID namespace are dead and waited for.
        first, until = self.inside.pidfd, time.monotonic() + 10
        while first not in select.select([first, *(c.pidfd for c in self.commands if c.is_running())], [], [], max(0, until - time.monotonic()))[0]:
            for command in list(self.commands):
                command.exit()
            if time.monotonic() >= until:
                break
        for command in list(self.commands):
            command.conclude()
        reaped(self.inside.pid)

    def serve(self, listener, woken):
        """Serves connections until the lifeline ends or SIGTERM comes, which writes `x` to the pipe `woken`."""
        listener.setblocking(False)
        # Data on the lifeline is for the fork server: only its end counts here.
        self.loop.watch(0, select.POLLRDHUP, self.end)
        self.loop.watch(woken, select.POLLIN, lambda: self.wake(woken))
        self.loop.watch(listener.fileno(), select.POLLIN, lambda: self.accept(listener))
        while not self.is_ended:
            self.loop.once()

    def end(self):
        self.is_ended = True

    def wake(self, woken):
        """Notices SIGTERM, and the ends of children that are no commands."""
        if b"x" in os.read(woken, 4096):
            self.end()
        self.handlers = {pid for pid in self.handlers if not reaped(pid)}
        if self.forwarder is not None and reaped(self.forwarder):
            self.forwarder = None

    def accept(self, listener):
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:
            time.sleep(0.01)  # no descriptor is free: the requester waits until one is
            return
        request = Request(self.loop, connection, lambda request, value: self.respond(request, value, listener))
        self.arriving.add(request)
        request.begin()

    def respond(self, request, value, listener):
        self.arriving.discard(request)
        connection = request.connection
        try:
            if value is None:
                connection.close()
            else:
                self.serve_one(connection, value, listener)
        except Exception as error:
            self.loop.forget(connection.fileno())
            self.commands = {command for command in self.commands if command.connection is not connection}
            answer(connection, {"failed": f"{type(error).__name__}: {error}"})
            connection.close()

    def serve_one(self, connection, request, listener):
        """Serves a request: `kill` and `restart` here, `exec` in the event loop, all others in a fork. In a user
        namespace `exec` runs in a fork, too.
        """
        if request["op"] in ("kill", "restart"):
            self.end_handlers()
            self.kill()
            if request["op"] == "restart":
                self.start()
            answer(connection, {"done": True})
        elif len(self.handlers) + len(self.commands) >= MOST_CONNECTIONS:
            answer(connection, {"failed": f"the environment already serves {MOST_CONNECTIONS} requests, the most that it takes at once"})
        elif request["op"] == "exec" and self.own_pids is not None:
            command = commands.Command(self.loop, self.inside, connection, lambda over: self.commands.discard(over))
            self.commands.add(command)
            command.take(request)
            return
        else:
            self.fork_handler(connection, request, listener)
        connection.close()

    def fork_handler(self, connection, request, listener):
        pid = os.fork()
        if pid:
            self.handlers.add(pid)
            return
        try:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            for command in self.commands:
                command.let_go()
            for arriving in self.arriving:
                arriving.connection.close()
            handle(self, connection, request)
        except Exception as error:
            answer(connection, {"failed": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(0)

    def end_handlers(self):
        """Kills the environment's first process, which ends all commands. Then gives each fork that serves a request
        5 s to end, and kills it if it has not.
        """
        if self.inside is not None:
            kernel.signal_pidfd(self.inside.pidfd, signal.SIGKILL)
        for pid in list(self.handlers):
            fd = None
            try:
                fd = os.pidfd_open(pid)
                if not select.select([fd], [], [], 5)[0]:
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
            finally:
                if fd is not None:
                    os.close(fd)

    def remove(self):
        """Ends the environment and removes its mounts, cgroups and directory. Snapshots stay in the store."""
        self.end_handlers()
        self.end_forwarder()
        self.kill()
        for command in list(self.commands):
            command.flush()
        cgroup.remove(self.config.get("cgroups", []))
        os.chdir("/")
        for name in ("merged", "upper", "disk"):
            try:
                kernel.unmount(f"{self.directory}/{name}")
            except OSError:
                pass  # The file system was never mounted.
        tree.remove(self.directory)


def handle(keeper, connection, request):
    op = request["op"]
    if op == "exec":
        loop, over = Loop(), []
        commands.Command(loop, keeper.inside, connection, over.append).take(request)
        while not over:
            loop.once()
    elif op in ("put", "putFile", "get"):
        transfer.handle(connection, request, "merged", answer)
    elif op == "snapshot":
        try:
            answer(connection, snapshot.take(keeper.config, request, keeper.user_namespace))
        except snapshot.TooDeep as error:
            answer(connection, {"failed": str(error), "retriable": False})
    else:
        answer(connection, {"failed": f"unknown operation {op}"})


def say(value):
    try:
        os.write(1, json.dumps(value).encode() + b"\n")
    except OSError:
        pass  # Troupe's process is gone, which the lifeline reports.


def reaped(pid):
    """Returns True if a child has ended, and lets the kernel forget it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def listen_for_signals():
    """Returns the read end of a pipe that gets `x` at SIGTERM, and another byte when a child ends."""
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGTERM, lambda *_: os.write(write, b"x"))
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def run(config, install_filter):
    """Starts an environment and serves it to its end. Returns this process's exit code."""
    woken = listen_for_signals()
    keeper = Keeper(config, install_filter)
    name = config["name"]
    try:
        if keeper.user_namespace:
            first.become_root()
        keeper.mount()
        keeper.limit()
        keeper.start()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.bind("s")
        listener.listen(MOST_CONNECTIONS)
    except Exception as error:
        say({"failed": name, "reason": f"{type(error).__name__}: {error}"})
        keeper.remove()
        return 1
    say({"ready": name, "pid": os.getpid()})
    try:
        keeper.serve(listener, woken)
    finally:
        keeper.remove()
    return 0
