"""System calls and constants that Python's os module lacks: mounts, namespaces, capabilities, seccomp.

in   arguments        out  OSError with the call's name where the kernel refuses; but signal_pidfd returns False, and
                           drop_capabilities ignores a capability that the kernel does not drop from the bounding set
Invariant: the functions are thin wrappers of system calls. The only policy here is which capabilities are kept
(CAPABILITIES) and which system calls and sockets the seccomp filter refuses (REFUSED, OPEN_FAMILIES, load_filter).
"""

import ctypes
import os
import signal

libc = ctypes.CDLL(None, use_errno=True)
# PyDLL keeps the interpreter's lock during a call: a process made by clone is a copy of the calling thread, which must
# hold that lock to run Python.
forking = ctypes.PyDLL(None, use_errno=True)
NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE, MS_STRICTATIME = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18, 1 << 19, 1 << 24
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
SECCOMP_MODE_FILTER = 2
# Numbers of clone and pivot_root, which differ between processors; drivers/probe.ts refuses other processors.
SYS_CLONE, SYS_PIVOT_ROOT = {"x86_64": (56, 155), "aarch64": (220, 41)}.get(os.uname().machine, (-1, -1))
SYS_PIDFD_SEND_SIGNAL, SYS_CLONE3 = 424, 435
CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 40
SCMP_ACT_ALLOW, SCMP_ACT_ERRNO = 0x7FFF0000, 0x00050000
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
# Families of sockets that a task may open: unix, inet, inet6, netlink. Others reach past the network namespace, as vsock
# does to the machine above, or to kernel code that no task needs.
OPEN_FAMILIES = {1, 2, 10, 16}

# Capabilities that Docker gives a container's root by default, without NET_RAW, MKNOD and AUDIT_WRITE.
CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8, "NET_BIND_SERVICE": 10, "SYS_CHROOT": 18, "SETFCAP": 31}
# System calls that reach kernel code which no task needs, beyond those that the missing capabilities close.
REFUSED = (
    "acct add_key bpf clock_adjtime clock_settime create_module delete_module finit_module fsconfig fsmount fsopen fspick "
    "get_kernel_syms get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load "
    "kexec_load keyctl lookup_dcookie mbind mount mount_setattr move_mount move_pages name_to_handle_at nfsservctl "
    "open_by_handle_at open_tree perf_event_open personality pivot_root process_vm_writev query_module quotactl reboot "
    "request_key set_mempolicy setns settimeofday stime swapoff swapon sysfs _sysctl umount umount2 unshare uselib userfaultfd "
    "ustat vm86 vm86old"
).split()


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source, target, kind, flags, data=None):
    encode = lambda text: None if text is None else os.fsencode(text)  # noqa: E731
    check(libc.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data)), f"mount {target}")


def unmount(target):
    check(libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def unshare(flags):
    check(libc.unshare(flags), "unshare")


def clone(namespaces):
    """Forks into new namespaces: returns the child's pid, and 0 in the child, which must end by exec or os._exit."""
    return check(forking.syscall(SYS_CLONE, ctypes.c_ulong(namespaces | signal.SIGCHLD), None, None, None, None), "clone")


def setns(fd, flags):
    check(libc.setns(fd, flags), "setns")


def prctl(option, value=0):
    return check(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def signal_pidfd(fd, number):
    """Sends a signal to the process that a pidfd names; returns False if it is dead already."""
    return libc.syscall(SYS_PIDFD_SEND_SIGNAL, fd, number, None, 0) == 0


def pivot_root(root):
    os.chdir(root)
    check(libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def load_filter():
    """Returns a function that installs the seccomp filter in the calling process, or None without libseccomp."""
    try:
        seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError:
        return None
    seccomp.seccomp_init.restype = ctypes.c_void_p
    seccomp.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    seccomp.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    seccomp.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    filter = ctypes.c_void_p(seccomp.seccomp_init(SCMP_ACT_ALLOW))
    # Commands may run set-user-id programs, which no_new_privs would disable, so libseccomp must not set it.
    seccomp.seccomp_attr_set(filter, 3, 0)

    def checked(result, what):
        """libseccomp returns the error's number, negative, and sets no errno."""
        if result < 0:
            raise OSError(-result, f"{what}: {os.strerror(-result)}")

    def refuse(number, error, count, comparisons):
        checked(seccomp.seccomp_rule_add_array(filter, SCMP_ACT_ERRNO | error, number, count, comparisons), f"seccomp rule for the system call {number}")

    for name in REFUSED:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number != -1:  # -1: a name that this machine's libseccomp does not know
            refuse(number, EPERM, 0, None)
    # New user namespaces would bring all capabilities back. A filter cannot read clone3's flags, which are in memory,
    # so clone3 fails with ENOSYS: the C library then falls back to clone.
    clone3 = seccomp.seccomp_syscall_resolve_name(b"clone3")
    refuse(SYS_CLONE3 if clone3 == -1 else clone3, ENOSYS, 0, None)

    class Comparison(ctypes.Structure):
        _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]

    clone = seccomp.seccomp_syscall_resolve_name(b"clone")
    masked_equal = 7
    for flag in (NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET):
        rule = (Comparison * 1)(Comparison(0, masked_equal, flag, flag))
        refuse(clone, EPERM, 1, ctypes.byref(rule))
    # The kernel knows fewer than 64 families, and reads only the lower 32 bits of the argument.
    socket = seccomp.seccomp_syscall_resolve_name(b"socket")
    for family in set(range(64)) - OPEN_FAMILIES:
        rule = (Comparison * 1)(Comparison(0, masked_equal, 0xFFFFFFFF, family))
        refuse(socket, EAFNOSUPPORT, 1, ctypes.byref(rule))
    # The filter's program is made only once: making it takes longer than all other steps before a command's exec.
    with open(os.memfd_create("filter"), "w+b") as file:
        checked(seccomp.seccomp_export_bpf(filter, file.fileno()), "seccomp_export_bpf")
        file.seek(0)
        code = file.read()

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    program = Program(len(code) // 8, code)
    return lambda: check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "prctl PR_SET_SECCOMP")


def drop_capabilities(keep=tuple(CAPABILITIES.values())):
    """Drops all capabilities except `keep`, for this process and all that it starts."""
    for capability in range(LAST_CAPABILITY + 1):
        if capability not in keep:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    bits = sum(1 << capability for capability in keep)
    low = bits.to_bytes(4, "little")
    header = CAPABILITY_VERSION_3.to_bytes(4, "little") + bytes(4)
    check(libc.capset(header, low + low + bytes(16)), "capset")
