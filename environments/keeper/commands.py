"""One command in an environment: a child inside its namespaces and cgroup, with a deadline and bounded output.

in   a request (a dict), its standard input        out  a result (a dict), standard output and error
Invariant: the status never comes from what the command writes. The caller's process is outside the environment's PID
namespace, so nothing inside can see or signal it. At the deadline, or when the requester hangs up, the command's
process group and its descendants are killed, except those whose parent had ended before, and which the first process
had adopted. Processes that a command left in the background when it ended by itself live on.
"""

import errno
import os
import resource
import select
import signal
import time

import kernel

READ = 65536
DRAIN_SECONDS = 0.2
PF_EXITING = 4  # flag of a task in /proc/PID/stat


class Inside:
    """Pids, descriptors and filter by which a command enters an environment, all opened before its first command."""

    def __init__(self, pid, pidfd, namespaces, cgroups, host_proc, install_filter, user_namespace):
        self.pid, self.pidfd, self.namespaces, self.cgroups = pid, pidfd, namespaces, cgroups
        self.host_proc, self.install_filter, self.user_namespace = host_proc, install_filter, user_namespace


def run(inside, request, stdin, is_gone):
    """Runs the command. It is killed at its deadline, or once `is_gone()` says that the requester has closed the
    connection.
    """
    started = time.monotonic()
    try:
        kernel.setns(inside.pidfd, inside.namespaces)
    except OSError as error:
        return ended("lost", started, reason=f"the environment has ended ({error.strerror})")
    in_read, in_write = os.pipe2(os.O_CLOEXEC)
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    err_read, err_write = os.pipe2(os.O_CLOEXEC)
    fail_read, fail_write = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            for target, fd in enumerate((in_read, out_write, err_write)):
                os.dup2(fd, target)
            become(inside, request, fail_write)
        except BaseException as error:
            os.write(fail_write, f"{type(error).__name__}: {error}".encode(errors="replace")[:4000])
        finally:
            os._exit(127)
    for fd in (in_read, out_write, err_write, fail_write):
        os.close(fd)
    limit = request["maxOutputBytes"]
    streams = {out_read: Stream(limit), err_read: Stream(limit)}
    status, timed_out = pump(inside, child, streams, in_write, stdin, started + request["timeoutMs"] / 1000, is_gone)
    reason = os.read(fail_read, 4096).decode(errors="replace")
    out, err = streams[out_read], streams[err_read]
    both = {"out": out, "err": err}
    if reason:
        return ended("rejected", started, reason=reason, **both)
    if timed_out:
        return ended("timeout", started, signal=signal.SIGKILL, **both)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # The end of the environment's first process kills all others: then it was not the command that failed.
        return ended("lost" if number == signal.SIGKILL and is_ending(inside) else "error", started, signal=number, **both)
    code = os.WEXITSTATUS(status)
    return ended("ok" if code == 0 else "error", started, code=code, **both)


def is_ending(inside):
    """Returns True if the environment's first process is dead or dying: the others die before it is reported dead."""
    if select.select([inside.pidfd], [], [], 0)[0]:
        return True
    try:
        fd = os.open(f"{inside.pid}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=inside.host_proc)
        with open(fd) as file:
            return bool(int(file.read().rpartition(")")[2].split()[6]) & PF_EXITING)
    except OSError:
        return True


class Stream:
    """Keeps the first `limit` bytes and counts the rest."""

    def __init__(self, limit):
        self.limit, self.kept, self.total = limit, bytearray(), 0

    def add(self, data):
        self.total += len(data)
        room = self.limit - len(self.kept)
        if room > 0:
            self.kept += data[:room]


def ended(status, started, code=None, signal=None, reason=None, out=None, err=None):
    empty = Stream(0)
    out, err = out or empty, err or empty
    wall = round((time.monotonic() - started) * 1000, 3)
    result = {"status": status, "exitCode": code, "signal": signal, "wallMs": wall, "stdoutBytes": out.total, "stderrBytes": err.total}
    if reason:
        result["reason"] = reason
    return result, bytes(out.kept), bytes(err.kept)


def pump(inside, child, streams, in_write, stdin, deadline, is_gone):
    """Moves bytes until the child has exited and what it wrote is read.

    Returns its wait status, and True if it was killed: at the deadline, or once the requester was gone. After its exit
    the streams are read until they end or fall silent, for at most DRAIN_SECONDS, since other processes may hold them
    open.
    """
    pidfd = os.pidfd_open(child)
    poll = select.poll()
    for fd in (*streams, in_write):
        os.set_blocking(fd, False)
    for fd in streams:
        poll.register(fd, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    open_streams = set(streams)
    sent = 0
    if stdin:
        poll.register(in_write, select.POLLOUT)
    else:
        os.close(in_write)
        in_write = -1
    timed_out = exited = False
    drain_until = None
    while open_streams or not exited:
        now = time.monotonic()
        if not exited and not timed_out and (now >= deadline or is_gone()):
            timed_out = True
            kill_tree(inside, child)
        if exited and drain_until is None:
            drain_until = now + DRAIN_SECONDS
        if drain_until is not None and now >= drain_until:
            break
        until = drain_until if drain_until is not None else deadline if not timed_out else now + 1
        events = poll.poll(max(0, min(until - now, 0.25)) * 1000)
        if exited and not events:
            break  # Processes that the command left behind hold the streams open and write nothing.
        for fd, _ in events:
            if fd == pidfd:
                exited = True
                poll.unregister(pidfd)
            elif fd == in_write:
                try:
                    sent += os.write(in_write, stdin[sent : sent + READ])
                except BrokenPipeError:
                    sent = len(stdin)
                if sent >= len(stdin):
                    poll.unregister(in_write)
                    os.close(in_write)
                    in_write = -1
            else:
                try:
                    data = os.read(fd, READ)
                except BlockingIOError:
                    continue
                if data:
                    streams[fd].add(data)
                else:
                    poll.unregister(fd)
                    open_streams.discard(fd)
    if timed_out:
        kill_tree(inside, child)
    return os.waitpid(child, 0)[1], timed_out


def kill_tree(inside, child):
    """Kills the command and its descendants, in up to 20 rounds as they may fork meanwhile, then its process group."""
    for _ in range(20):
        found = descendants(inside.host_proc, child)
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if len(found) <= 1:
            break
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass


def descendants(host_proc, pid):
    found = [pid]
    for one in found:
        try:
            fd = os.open(f"{one}/task/{one}/children", os.O_RDONLY | os.O_CLOEXEC, dir_fd=host_proc)
            with open(fd) as file:
                found += [int(child) for child in file.read().split()]
        except OSError:
            continue
    return found


def become(inside, request, fail):
    """In the child: joins the cgroup, becomes the user, and runs the command. It never returns, unless by raising."""
    os.setsid()
    for fd in inside.cgroups:
        os.write(fd, b"0")
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.closerange(3, fail)
    os.closerange(fail + 1, 4096)
    user, group, groups, home = identity(request.get("user"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # HOME as the user database says, unless the caller names another.
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, **request["env"]}
    os.umask(0o022)
    if inside.install_filter:
        inside.install_filter()
    kernel.drop_capabilities()
    if not inside.user_namespace:
        os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    # The directory is looked up as the user, who may have no right to it.
    os.chdir(request["cwd"])
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    command = request["command"]
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    encode = os.fsencode
    os.execvpe(encode(words[0]), [encode(word) for word in words], {encode(name): encode(value) for name, value in env.items()})


def identity(user):
    """Returns uid, gid, groups and home of a user, by name or id, from the environment's /etc/passwd and /etc/group."""
    wanted = "0" if user is None else str(user)
    name, _, group = wanted.partition(":")
    found = next((row for row in rows("/etc/passwd", 7) if name in (row[0], row[2])), None)
    if found is None and not name.isdigit():
        raise LookupError(f"no user '{name}' in the environment's /etc/passwd")
    uid, gid, home, login = (int(found[2]), int(found[3]), found[5] or "/", found[0]) if found else (int(name), int(name), "/", None)
    groups = [int(row[2]) for row in rows("/etc/group", 4) if login and login in row[3].split(",")]
    if group:
        row = next((row for row in rows("/etc/group", 4) if group in (row[0], row[2])), None)
        if row is None and not group.isdigit():
            raise LookupError(f"no group '{group}' in the environment's /etc/group")
        gid = int(row[2]) if row else int(group)
    return uid, gid, [gid, *groups], home


def rows(path, fields):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            return []
        raise
    with open(fd, errors="surrogateescape") as file:
        text = file.read(1 << 20)
    lines = [line.split(":") for line in text.splitlines()]
    return [row for row in lines if len(row) == fields and row[2].isdigit()]
