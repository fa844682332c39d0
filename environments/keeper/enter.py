"""Enters an environment: what a command's process does between its fork and its exec.

in   a request: user, directory, variables, command        out  the command's program, or an exception
Invariant: before a program of the environment runs in the process, the process is in the environment's namespaces and
cgroups, under its seccomp filter, without the keeper's descriptors and capabilities. Until its exec, nothing inside can
trace it, read its memory or open its program, and no signal from inside reaches a handler of the keeper.
"""

import errno
import os
import resource
import signal

import kernel

# Signals that the keeper handles. They are blocked when this process begins.
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def become(inside, request, fail):
    """In the child: joins the cgroup, becomes the user, and runs the command. Never returns, but may raise."""
    # This process's memory is a copy of the keeper's: until the exec, which undoes this, nothing inside may read it.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    os.setsid()
    kernel.setns(inside.pidfd, kernel.NEWNS | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS)
    for fd in inside.cgroups:
        os.write(fd, b"0")
    for number in (*HANDLED, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.closerange(3, fail)
    os.closerange(fail + 1, 4096)
    user, group, groups, home = identity(request.get("user"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # HOME is the user's in /etc/passwd, unless the request names another.
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, **request["env"]}
    os.umask(0o022)
    if inside.install_filter:
        inside.install_filter()
    kernel.drop_capabilities()
    if not inside.user_namespace:
        os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    # The directory is entered as the user, who may lack the right to enter it.
    os.chdir(request["cwd"])
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
    try:
        text = os.read(fd, 1 << 20).decode(errors="surrogateescape")
    finally:
        os.close(fd)
    lines = [line.split(":") for line in text.splitlines()]
    return [row for row in lines if len(row) == fields and row[2].isdigit()]
