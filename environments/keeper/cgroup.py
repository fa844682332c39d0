"""Cgroups of an environment, in version 1, version 2, or both mounted side by side.

in   a name, limits        out  directories, one for each hierarchy that limits something
Invariant: a hierarchy that cannot be written is left out, without an error: its limits do not hold. If another error
ends `create`, it first removes the cgroups that it made.
"""

import errno
import functools
import os
import time

CURE = "this process needs a cgroup hierarchy that it may write (in a container: /sys/fs/cgroup mounted writable, such as with --privileged) with the controllers cpu, memory and pids"


@functools.cache
def hierarchies():
    """Returns (mount point, controllers) of every hierarchy that was mounted at the first call; controllers is None for
    version 2.
    """
    found = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, _, right = line.rstrip("\n").partition(" - ")
            kind, _, options = right.split(" ", 2)
            point = left.split(" ")[4]
            if kind == "cgroup2":
                found.append((point, None))
            elif kind == "cgroup":
                found.append((point, set(options.split(","))))
    return found


def create(name, limits):
    """Creates the cgroups that hold `limits`. Returns their directories."""
    cpus, memory, processes = limits.get("cpus"), limits["memoryMb"] << 20, limits["processes"]
    files = {
        "memory": [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)],
        "pids": [("pids.max", processes)],
        "cpu": [("cpu.cfs_quota_us", int(cpus * 100000))] if cpus else [],
        None: [("memory.max", memory), ("memory.swap.max", 0), ("pids.max", processes)] + ([("cpu.max", f"{int(cpus * 100000)} 100000")] if cpus else []),
    }
    created = []
    for point, controllers in hierarchies():
        wanted = files[None] if controllers is None else [entry for name in controllers & set(filter(None, files)) for entry in files[name]]
        if not wanted:
            continue
        path = f"{point}/{name}"
        try:
            os.makedirs(path, exist_ok=True)
            if controllers is None:
                enable(point, name)
            written = [write(f"{path}/{file}", value) for file, value in wanted if os.path.exists(f"{path}/{file}")]
        except OSError as error:
            made = [path] if os.path.isdir(path) else []
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
                remove(made)
                continue
            remove([*created, *made])
            raise
        if written:
            created.append(path)
        else:
            remove([path])
    return created


def missing(paths, limits):
    """Returns the names of limits that none of these cgroups can hold."""
    files = {"memoryMb": ("memory.limit_in_bytes", "memory.max"), "processes": ("pids.max",), "cpus": ("cpu.cfs_quota_us", "cpu.max")}
    held = [name for name, either in files.items() if any(os.path.exists(f"{path}/{file}") for path in paths for file in either)]
    return [name for name in files if limits.get(name) and name not in held]


def enable(point, name):
    """Enables the controllers in each cgroup above `name`, for its children. A controller that is missing stays off."""
    above = point
    for part in name.split("/"):
        for controller in ("memory", "pids", "cpu"):
            try:
                write(f"{above}/cgroup.subtree_control", f"+{controller}")
            except OSError:
                pass
        above = f"{above}/{part}"


def write(path, value):
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
    return path


def remove(paths):
    """Removes cgroups, each in at most 100 tries 10 ms apart: a dying process keeps its cgroup for a moment."""
    for path in paths:
        for _ in range(100):
            try:
                os.rmdir(path)
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)
