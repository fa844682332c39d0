"""Isolates the zygote once, so that each forked child has few steps left. Level `full`: the zygote enters new mount,
network, IPC, UTS and cgroup namespaces (a user namespace too, unless root can do without one), changes its root
directory, and later gives up root. Level `degraded`: the zygote only creates the Landlock ruleset; each child applies
it to itself.

in   the directories that code may read
out  `full`: a process without network, whose read-only root holds those directories, the system's (SYSTEM, SETTINGS),
     devices (DEVICES), a passwd and a group file, and /tmp; `degraded`: the ruleset
Invariant: a step that isolation needs either succeeds or raises. No step is undone: a zygote that fails here exits.
"""

import ctypes
import os
import stat
import struct

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWNET = 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_PIVOT_ROOT, SYS_MOUNT_SETATTR = 41 if os.uname().machine == "aarch64" else 155, 442
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD = 444, 445
AT_RECURSIVE, ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 0x8000, 1, 2, 4
PR_SET_DUMPABLE = 4
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
DEVICES = ("null", "zero", "full", "random", "urandom")
INSIDE = 1000  # Id of the user and group that code sees.
SCRATCH, MOVED = "/tmp", "/packages"
OOM_SCORE = "500"  # oom_score_adj: the kernel adds half of the machine's memory to what the process holds


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source, target, kind, flags, data=None):
    encode = lambda text: None if text is None else text.encode()  # noqa: E731
    check(libc.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data)), f"mount {target}")


def prefer_to_be_killed():
    """Makes the kernel, when memory runs out, kill calls before the other processes of the machine: children inherit
    this score, and the largest of them is killed first.
    """
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(OOM_SCORE)
    except OSError:
        pass  # Where /proc is read-only, the kernel chooses by size alone.


def path_inside(path, readable):
    """Returns the path at which code finds `path`. A call's own /tmp hides the machine's, so directories below /tmp get
    another path.
    """
    for n, directory in enumerate(readable):
        if directory.startswith(SCRATCH + "/") and (path == directory or path.startswith(directory + "/")):
            return f"{MOVED}/{n}{path[len(directory):]}"
    return path


def enter(config, proc):
    """Enters namespaces and a root directory that holds the readable directories and nothing else. Started as root, the
    zygote gives code a user of its own, since the kernel does not count the processes of uid 0; otherwise code runs
    as the user who started the zygote. Returns the user id that `drop` changes to.
    """
    real_uid, real_gid = os.getuid(), os.getgid()
    spaces = NEWNS | NEWNET | NEWIPC | NEWUTS | NEWCGROUP
    if config["uid"] and real_uid == 0 and libc.unshare(spaces) == 0:
        change_root(config)
        return config["uid"]
    check(libc.unshare(spaces | NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{INSIDE} {real_uid} 1"), ("gid_map", f"{INSIDE} {real_gid} 1")):
        fd = os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc)
        os.write(fd, text.encode())
        os.close(fd)
    change_root(config)
    return INSIDE


def drop(uid):
    """Gives up root, if the zygote has it. Called when all files that only root may read have been read."""
    if os.getuid() in (uid, INSIDE):
        return
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # Without this call, /proc/self/uid_map of the children would belong to root.


def change_root(config):
    root = config["base"]
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("root", root, "tmpfs", MS_NOSUID, "size=1m,mode=755")
    bound = []
    for path in SYSTEM + SETTINGS:
        place(root, path, bound)
    for path in config["readable"]:
        for name in dict.fromkeys((os.path.realpath(path), path)):
            place(root, name, bound, path_inside(name, config["readable"]))
    seal_tree(root, bound)
    os.mkdir(root + SCRATCH, 0o700)
    os.makedirs(f"{root}/dev", exist_ok=True)
    os.symlink("/tmp", f"{root}/dev/shm")
    for name in DEVICES:
        open(f"{root}/dev/{name}", "w").close()
        mount(f"/dev/{name}", f"{root}/dev/{name}", None, MS_BIND)
    # These mounts are read-only so that a call cannot set a device's times, which all calls and the host can see. The
    # device itself can still be written.
    seal_tree(root, [f"/dev/{name}" for name in DEVICES], ATTR_RDONLY | ATTR_NOSUID)
    os.makedirs(f"{root}/etc", exist_ok=True)
    with open(f"{root}/etc/passwd", "w") as file:
        file.write(f"user:x:{INSIDE}:{INSIDE}::/tmp:/bin/sh\n")
    with open(f"{root}/etc/group", "w") as file:
        file.write(f"user:x:{INSIDE}:\n")
    hide(root, bound)
    os.chdir(root)
    check(libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")
    mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def place(root, path, bound, at=None):
    """Bind-mounts a file or directory at its own path or at `at`; copies a symbolic link. Does nothing for a path that
    does not exist, lies inside one already bound, or lies in /tmp, where each call has a directory of its own.
    """
    at = at or path
    inside = any(at == other or at.startswith(other + "/") for other in (*bound, SCRATCH))
    if inside or not os.path.lexists(path):
        return
    target = root + at
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        open(target, "w").close()
    mount(path, target, None, MS_BIND | MS_REC)
    bound.append(at)


def seal_tree(root, bound, wanted=ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV):
    """Sets attributes of mounts: by default read-only, no set-user-ID and no devices. The numbers of `wanted` are those
    of the mount flags MS_RDONLY, MS_NOSUID and MS_NODEV."""
    for path in bound:
        attributes = struct.pack("=QQQQ", wanted, 0, 0, 0)
        done = libc.syscall(SYS_MOUNT_SETATTR, -100, (root + path).encode(), AT_RECURSIVE, attributes, len(attributes))
        if done < 0:  # Kernels before Linux 5.12 have no mount_setattr.
            mount(None, root + path, None, MS_REMOUNT | MS_BIND | wanted)


def hide(root, bound):
    """Makes the directories above each readable directory passable but not listable; /, /etc and /usr stay as they are.
    """
    for path in bound:
        above = os.path.dirname(path)
        while above not in ("/", "/etc", "/usr"):
            os.chmod(root + above, 0o111)
            above = os.path.dirname(above)


def landlock(readable):
    """Returns a Landlock ruleset: SYSTEM, SETTINGS and these directories can be read, nothing written but DEVICES.
    Raises OSError if the kernel has no Landlock.
    """
    abi = check(libc.syscall(SYS_LANDLOCK_CREATE, None, 0, 1), "landlock")
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    attributes = struct.pack("=Q", files)
    if abi >= 4:
        attributes += struct.pack("=Q", 3)  # Landlock's network rights: TCP bind and connect are denied.
    if abi >= 6:
        attributes += struct.pack("=Q", 3)  # Landlock's scopes: abstract sockets and signals do not leave the sandbox.
    ruleset = check(libc.syscall(SYS_LANDLOCK_CREATE, attributes, len(attributes), 0), "landlock")
    read_file, read_dir, write_file = 4, 8, 2
    rules = [(path, read_file | read_dir) for path in (*SYSTEM, *SETTINGS, *readable)]
    rules += [(f"/dev/{name}", read_file | write_file) for name in DEVICES]
    for path, access in rules:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= ~read_dir
        rule = struct.pack("=Qi", access, fd)
        check(libc.syscall(SYS_LANDLOCK_ADD, ruleset, 1, rule, 0), f"landlock {path}")
        os.close(fd)
    return ruleset


def reachable(paths, uid):
    """Returns True if `uid` is not root and every user can reach these directories: code that runs as that private user
    must be able to import from them.
    """
    for path in paths:
        while path != "/":
            try:
                mode = os.stat(path)
            except OSError:
                break
            if not mode.st_mode & 0o001:
                return False
            path = os.path.dirname(path)
    return uid > 0
