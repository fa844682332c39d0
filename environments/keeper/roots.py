"""Builds the root directory of an environment, in the mount namespace of its first process.

in   the directory where the environment's files are mounted        out  the process's root; the machine's is unmounted
Invariant: the files of an image or a snapshot may be hostile. For an image, all mounts are made after the root has
changed, so no symbolic link in it can lead outside, and only kernel file systems and files made here are mounted. For
`local`, which needs the machine's files, all mounts are made before the root changes, and only at paths without a
symbolic link. The parts of /proc and /sys that describe the machine or change it are hidden or read-only.
"""

import os
import stat

import kernel

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/ssl/certs", "/etc/python3", "/etc/mime.types", "/etc/services", "/etc/protocols")
# Device numbers of the nodes in /dev.
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
MASKED = ("acpi", "asound", "interrupts", "kallsyms", "kcore", "keys", "kmsg", "latency_stats", "sched_debug", "scsi", "timer_list", "timer_stats")
READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
NO_SUID, NONE = kernel.MS_NOSUID, kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def of_image(root):
    """Makes an image's files the root, with /proc, /dev and /sys of the environment's own."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.pivot_root(root)
    os.umask(0)
    for place in ("/proc", "/dev", "/sys"):
        directory(place)
    kernel.mount("proc", "/proc", "proc", NONE)
    kernel.mount("dev", "/dev", "tmpfs", NO_SUID | kernel.MS_STRICTATIME, "mode=755,size=64m")
    for name, (major, minor) in DEVICES.items():
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    for place in ("/dev/pts", "/dev/shm"):
        os.mkdir(place, 0o755)
    kernel.mount("devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    kernel.mount("shm", "/dev/shm", "tmpfs", NONE, "mode=1777,size=64m")
    for name, target in {**LINKS, "ptmx": "pts/ptmx"}.items():
        os.symlink(target, f"/dev/{name}")
    kernel.mount("sysfs", "/sys", "sysfs", NONE | kernel.MS_RDONLY)
    restrict_proc("")
    hide("/sys/firmware", "/dev/null")


def is_linked(root, path):
    """Returns True if a name in a path is a symbolic link."""
    parts = path.split("/")[1:]
    return any(os.path.islink(root + "/" + "/".join(parts[: count + 1])) for count in range(len(parts)))


def directory(path, root=""):
    """Makes a directory to mount on, unless the image has it."""
    try:
        os.mkdir(root + path, 0o755)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(root + path).st_mode):
            raise NotADirectoryError(f"{path} of the image is a file or a link, expected a directory") from None


def of_machine(root):
    """Puts the machine's programs, read-only, /proc and /dev into the environment's files, and makes them the root."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    read_only = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    for path in (*SYSTEM, *SETTINGS):
        target = root + path
        if os.path.islink(path) or not os.path.exists(path) or is_linked(root, path) or not os.path.exists(target):
            continue
        kernel.mount(path, target, None, kernel.MS_BIND)
        kernel.mount(None, target, None, kernel.MS_REMOUNT | kernel.MS_BIND | read_only)
    for place in ("/proc", "/dev"):
        directory(place, root)
    kernel.mount("proc", f"{root}/proc", "proc", NONE)
    restrict_proc(root)
    kernel.mount("dev", f"{root}/dev", "tmpfs", NO_SUID, "size=64k,mode=755")
    for name in DEVICES:
        if not os.path.exists(f"/dev/{name}"):
            continue
        open(f"{root}/dev/{name}", "w").close()
        kernel.mount(f"/dev/{name}", f"{root}/dev/{name}", None, kernel.MS_BIND)
    os.mkdir(f"{root}/dev/shm", 0o1777)
    kernel.mount("shm", f"{root}/dev/shm", "tmpfs", NONE, "size=64m,mode=1777")
    for name, target in LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    kernel.pivot_root(root)


def restrict_proc(root):
    for name in READ_ONLY:
        path = f"{root}/proc/{name}"
        if os.path.exists(path):
            kernel.mount(path, path, None, kernel.MS_BIND)
            kernel.mount(None, path, None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | NONE)
    for name in MASKED:
        hide(f"{root}/proc/{name}", "/dev/null")


def hide(path, null):
    """Mounts an empty directory over a directory, and `null` over a file, if the path exists."""
    if os.path.isdir(path):
        kernel.mount("hidden", path, "tmpfs", NONE | kernel.MS_RDONLY, "size=4k,mode=555")
    elif os.path.exists(path):
        kernel.mount(null, path, None, kernel.MS_BIND)
