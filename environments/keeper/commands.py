"""Runs a command in an environment: a child inside its namespaces and cgroup, with a deadline and bounded output.

in   a connection with a request, after which the command's standard input comes
out  on the connection a result (JSON), standard output and error
Invariant: the status never comes from what the command writes. The process that runs this module is outside the
environment's PID namespace, so nothing inside can see or signal it. At the deadline, or when the requester closes the
connection, the command's process group and all its descendants are killed. One kind of process survives: one in
another process group whose parent ended earlier, so that the environment's first process became its parent. If the
command ends by itself, processes that it left in the background keep running.
"""

import json
import os
import select
import signal
import struct
import time

import enter

READ = 65536
MOST_IN_PIPE = 1 << 20
DRAIN_SECONDS = 0.2


class Stream:
    """Keeps the first `limit` bytes and counts the rest."""

    def __init__(self, limit):
        self.limit, self.kept, self.total = limit, bytearray(), 0

    def add(self, data):
        self.total += len(data)
        room = self.limit - len(self.kept)
        if room > 0:
            self.kept += data[:room]


class Command:
    """A command from its request to the last byte of its answer. `over(self)` is called once, at its end."""

    def __init__(self, loop, inside, connection, over):
        self.loop, self.inside, self.connection, self.over = loop, inside, connection, over
        self.request, self.stdin, self.sent, self.missing = None, bytearray(), 0, 0
        self.child, self.pidfd, self.status, self.timed_out = None, None, None, False
        self.pipes, self.streams, self.answer = set(), {}, None

    def take(self, request):
        self.request, self.missing = request, request.get("stdinBytes", 0)
        self.connection.setblocking(False)
        if self.missing == 0:
            self.begin()
        else:
            self.loop.watch(self.connection.fileno(), select.POLLIN, self.receive)

    def receive(self):
        """Reads standard input from the requester. The command starts once all of it has arrived."""
        try:
            data = self.connection.recv(min(self.missing, READ))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.stdin += data
        self.missing -= len(data)
        if self.missing == 0:
            self.begin()

    def begin(self):
        """Starts the command, and watches it and its requester."""
        self.started = time.monotonic()
        self.loop.watch(self.connection.fileno(), select.POLLRDHUP, self.hang_up)
        try:
            self.fork()
        except Exception as error:
            self.give_up(error)
            return
        self.loop.watch(self.pidfd, select.POLLIN, self.exit)
        for fd in (self.out, self.err):
            self.streams[fd] = Stream(self.request["maxOutputBytes"])
            self.loop.watch(fd, select.POLLIN, lambda fd=fd: self.read(fd))
        if self.stdin:
            self.loop.watch(self.in_write, select.POLLOUT, self.write)
        else:
            self.shut(self.in_write)
        self.loop.at(self.started + self.request["timeoutMs"] / 1000, self.time_out)

    def fork(self):
        """Forks the command's process in the environment, with its pipes."""
        in_read, self.in_write = self.pipe()
        self.out, out_write = self.pipe()
        self.err, err_write = self.pipe()
        self.fail, fail_write = self.pipe()
        self.child = self.inside.fork()
        if self.child == 0:
            try:
                for target, fd in enumerate((in_read, out_write, err_write)):
                    os.dup2(fd, target)
                enter.become(self.inside, self.request, fail_write)
            except BaseException as error:
                os.write(fail_write, f"{type(error).__name__}: {error}".encode(errors="replace")[:4000])
            finally:
                os._exit(127)
        for fd in (in_read, out_write, err_write, fail_write):
            self.shut(fd)
        for fd in self.pipes:
            os.set_blocking(fd, False)
        self.pidfd = os.pidfd_open(self.child)
        self.pipes.add(self.pidfd)

    def give_up(self, error):
        """Answers for a command whose process could not be made or could not be watched."""
        if self.child is not None:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self.child = None
        for fd in list(self.pipes):
            self.shut(fd)
        words = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        # If the first process has died, fork fails with ENOMEM, as without memory: `unstarted` tells the two apart.
        self.finish(self.unstarted(), reason=f"the command's process could not be made: {words}")

    def pipe(self):
        ends = os.pipe2(os.O_CLOEXEC)
        self.pipes.update(ends)
        return ends

    def shut(self, fd):
        if fd in self.pipes:
            self.loop.forget(fd)
            self.pipes.discard(fd)
            os.close(fd)

    def write(self):
        try:
            self.sent += os.write(self.in_write, self.stdin[self.sent : self.sent + READ])
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.sent = len(self.stdin)
        if self.sent >= len(self.stdin):
            self.shut(self.in_write)

    def read(self, fd):
        """Reads once from a stream. Returns False if there was nothing to read."""
        try:
            data = os.read(fd, READ)
        except BlockingIOError:
            return False
        if data:
            self.streams[fd].add(data)
            return True
        self.shut(fd)
        if self.status is not None and not self.is_open():
            self.conclude()
        return False

    def is_running(self):
        return self.child is not None and self.status is None

    def is_open(self):
        return self.out in self.pipes or self.err in self.pipes

    def exit(self):
        """Takes the exit status. Processes that the command left behind may hold its streams open: these are read until
        they end, for at most DRAIN_SECONDS.
        """
        if not self.is_running():
            return
        if os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        # Kills processes that the command forked while it was killed. After waitpid, its pid may be another process's.
        if self.timed_out:
            self.inside.kill_tree(self.child)
        self.status = os.waitpid(self.child, 0)[1]
        self.shut(self.pidfd)
        self.loop.cancel(self.time_out)
        if self.is_open():
            self.loop.at(time.monotonic() + DRAIN_SECONDS, self.conclude)
        else:
            self.conclude()

    def time_out(self):
        self.timed_out = True
        self.inside.kill_tree(self.child)

    def hang_up(self):
        """Kills the command, as at its deadline: the requester has closed the connection."""
        self.loop.forget(self.connection.fileno())
        if self.is_running() and not self.timed_out:
            self.time_out()

    def conclude(self):
        """Answers with the command's result: it has exited, or its environment has ended."""
        if self.answer is not None or self.child is None:
            return
        for fd in (self.out, self.err):
            # At most what a pipe can hold is read: a process that was left behind may write without end.
            for _ in range(MOST_IN_PIPE // READ):
                if fd not in self.pipes or not self.read(fd):
                    break
        if self.answer is not None:
            return
        if self.status is None:
            pid, status = os.waitpid(self.child, os.WNOHANG)
            self.status = status if pid else signal.SIGKILL
        try:
            reason = os.read(self.fail, 4096).decode(errors="replace")
        except BlockingIOError:
            reason = ""
        if reason:
            self.finish(self.unstarted(), reason=reason)
        elif self.timed_out:
            self.finish("timeout", signal=signal.SIGKILL)
        elif os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            # The end of the environment's first process kills all others: then it was not the command that failed.
            is_lost = number == signal.SIGKILL and self.inside.is_ending()
            self.finish("lost" if is_lost else "error", signal=number)
        else:
            code = os.WEXITSTATUS(self.status)
            self.finish("ok" if code == 0 else "error", code=code)

    def unstarted(self):
        return "lost" if self.inside.is_ending() else "rejected"

    def finish(self, status, code=None, signal=None, reason=None):
        out, err = self.streams.values() if self.streams else (Stream(0), Stream(0))
        wall = round((time.monotonic() - self.started) * 1000, 3)
        result = {"status": status, "exitCode": code, "signal": signal, "wallMs": wall, "stdoutBytes": out.total, "stderrBytes": err.total}
        if reason:
            result["reason"] = reason
        head = json.dumps({**result, "lengths": [len(out.kept), len(err.kept)]}).encode()
        self.answer = memoryview(struct.pack("<I", len(head)) + head + out.kept + err.kept)
        for fd in list(self.pipes):
            self.shut(fd)
        for act in (self.time_out, self.conclude):
            self.loop.cancel(act)
        self.loop.watch(self.connection.fileno(), select.POLLOUT, self.send)
        self.send()

    def send(self):
        try:
            while self.answer:
                self.answer = self.answer[self.connection.send(self.answer) :]
        except BlockingIOError:
            return
        except OSError:
            pass  # The requester has closed the connection.
        self.close()

    def flush(self):
        """Sends the rest of the answer, for at most 5 s."""
        try:
            self.connection.settimeout(5)
            self.connection.sendall(self.answer or b"")
        except OSError:
            pass  # The requester has closed the connection, or does not read.
        self.close()

    def close(self):
        self.loop.forget(self.connection.fileno())
        self.connection.close()
        self.over(self)

    def let_go(self):
        """In a child of the keeper that serves another request: closes its copies of this command's descriptors."""
        self.connection.close()
        for fd in self.pipes:
            os.close(fd)
