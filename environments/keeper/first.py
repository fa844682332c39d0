"""Starts the first process of an environment, in namespaces of its own.

in   the keeper's configuration, the environment's cgroups, the seccomp filter        out  its pid on the machine
Invariant: the first process only waits: it runs the image's program `sleep`, which may be hostile like every file of an
image, so nothing of the keeper is left in the process. The kernel reaps its children, also those that it adopts. It has
no capability and dies with the keeper. Its death kills all other processes of the environment.
"""

import fcntl
import os
import signal
import socket
import struct

import kernel
import pipe
import roots

NAMESPACES = kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
PATH = ("/bin", "/usr/bin", "/usr/local/bin")
WAIT = "2147483647"  # seconds


def start(config, cgroups, install_filter):
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = kernel.clone(NAMESPACES)
    if pid == 0:
        be_first(config, cgroups, install_filter, write)
    os.close(write)
    said = pipe.read_all(read, kill=pid).decode(errors="replace")
    if said != "built\n":
        os.waitpid(pid, 0)
        raise RuntimeError(said.removeprefix("built\n") or "the environment's first process ended before it was ready")
    return pid


def be_first(config, cgroups, install_filter, write):
    """In the child: builds the root and waits in another program, so that the keeper's memory and command line are not
    in the environment. Never returns.
    """
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        build = roots.of_image if config["kind"] == "oci" else roots.of_machine
        build("merged")
        raise_loopback()
        socket.sethostname("environment")
        # `sleep` is a file of the environment, so the environment's limits and filter bind the first process, too.
        for fd in cgroups:
            os.write(fd, b"0")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if install_filter:
            install_filter()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.drop_capabilities(keep=())
        program = next((f"{folder}/sleep" for folder in PATH if os.path.exists(f"{folder}/sleep")), None)
        if program is None:
            raise FileNotFoundError(f"the image has no program sleep in {', '.join(PATH)}")
        os.write(write, b"built\n")
        os.closerange(0, write)
        os.closerange(write + 1, 4096)
        os.execve(program, ["sleep", WAIT], {"PATH": "/usr/bin:/bin"})
    except BaseException as error:
        os.write(write, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(1)


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
