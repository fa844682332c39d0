"""Starts the first process of an environment: in runc's container, or, for `local`, in namespaces of its own.

in   the keeper's configuration        out  its pid on the machine
Invariant: the first process does nothing but reap orphans. Its death kills all other processes of the environment.
"""

import fcntl
import os
import signal
import socket
import struct
import subprocess

import kernel

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/ssl/certs", "/etc/python3", "/etc/mime.types", "/etc/services", "/etc/protocols")
WAITS = "while :; do sleep 86400 & wait $!; done"
DEVICES = ("null", "zero", "full", "random", "urandom")


def runc(config, *words):
    command = [config["runc"], "--root", config["state"], *words]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, timeout=30)


def start_runc(config):
    directory = config["directory"]
    command = [config["runc"], "--root", config["state"], "--log", f"{directory}/runc.log", "run", "--detach", "--bundle", directory, "--pid-file", f"{directory}/runc.pid", config["name"]]
    # The container keeps these descriptors, so none of them may be a pipe that somebody waits for.
    null = subprocess.DEVNULL
    done = subprocess.run(command, stdin=null, stdout=null, stderr=null, timeout=60)
    if done.returncode != 0:
        with open(f"{directory}/runc.log", errors="replace") as file:
            raise RuntimeError(f"runc ended with status {done.returncode}: {file.read().strip()[-600:]}")
    with open(f"{directory}/runc.pid") as file:
        return int(file.read())


def delete_runc(config):
    try:
        runc(config, "delete", "--force", config["name"])
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pass  # The container is deleted already.


def start_local(config):
    """Forks twice: the first child makes the namespaces, its child is their first process; each dies with its parent."""
    read, write = os.pipe2(os.O_CLOEXEC)
    if os.fork() == 0:
        try:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            kernel.unshare(kernel.NEWPID | kernel.NEWNS | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS)
            inner = os.fork()
            if inner == 0:
                be_first(config, write)
            os.write(write, b"%d\n" % inner)
            os.close(write)
            os.closerange(0, 4096)
            os.waitpid(inner, 0)
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        lines = file.read().split("\n")
    pid = next((int(line) for line in lines if line.isdigit()), None)
    if "built" not in lines or pid is None:
        raise RuntimeError("; ".join(line for line in lines if line) or "the environment's first process ended before it was ready")
    return pid


def be_first(config, write):
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        build_root("merged")
        raise_loopback()
        socket.sethostname("environment")
        kernel.drop_capabilities(keep=())
        os.write(write, b"built\n")
        os.closerange(0, 3)
        # The first process runs another program, so that neither the memory nor the command line of the keeper is in
        # the environment.
        os.execve("/bin/sh", ["sh", "-c", WAITS], {"PATH": "/usr/bin:/bin"})
    except BaseException as error:
        os.write(write, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(1)


def build_root(root):
    """Puts the machine's programs, read-only, /proc and /dev into the environment's files, and makes them the root."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    read_only = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    for path in (*SYSTEM, *SETTINGS):
        target = root + path
        if os.path.islink(path) or not os.path.exists(path) or os.path.islink(target) or not os.path.exists(target):
            continue
        kernel.mount(path, target, None, kernel.MS_BIND)
        kernel.mount(None, target, None, kernel.MS_REMOUNT | kernel.MS_BIND | read_only)
    kernel.mount("proc", f"{root}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    for name in ("sys", "sysrq-trigger", "irq", "bus", "fs"):
        if os.path.exists(f"{root}/proc/{name}"):
            kernel.mount(f"{root}/proc/{name}", f"{root}/proc/{name}", None, kernel.MS_BIND)
            kernel.mount(None, f"{root}/proc/{name}", None, kernel.MS_REMOUNT | kernel.MS_BIND | read_only)
    for name in ("kcore", "keys", "timer_list", "sched_debug", "kmsg", "kallsyms"):
        if os.path.exists(f"{root}/proc/{name}"):
            kernel.mount("/dev/null", f"{root}/proc/{name}", None, kernel.MS_BIND)
    kernel.mount("dev", f"{root}/dev", "tmpfs", kernel.MS_NOSUID, "size=64k,mode=755")
    for name in DEVICES:
        open(f"{root}/dev/{name}", "w").close()
        kernel.mount(f"/dev/{name}", f"{root}/dev/{name}", None, kernel.MS_BIND)
    os.mkdir(f"{root}/dev/shm", 0o1777)
    kernel.mount("shm", f"{root}/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "size=64m,mode=1777")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
        os.symlink(target, f"{root}/dev/{name}")
    kernel.pivot_root(root)


def raise_loopback():
    SIOCSIFFLAGS, IFF_UP = 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def become_root():
    """Maps the user who runs Troupe to root of a new user namespace."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def started_at(host_proc, pid):
    """Returns a process's start time in clock ticks since boot; pid and start time name one process of this boot."""
    fd = os.open(f"{pid}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=host_proc)
    with open(fd) as file:
        return file.read().rpartition(")")[2].split()[19]


