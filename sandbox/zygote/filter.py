"""The seccomp filters: the system calls that a child may make, compiled to a search tree of BPF.

in   flags: may start processes, level `degraded`, cell of a session     out  a Filter
Invariant: a system call that is not listed is refused (EPERM), so one that a newer kernel adds is refused too. Calls of
the x32 and i386 interfaces, which reach the same kernel code under other numbers, end the process.
The filter is a tree, since the kernel runs it once for every number when it is installed: a list costs four times as
much.
"""

import platform
import struct

READ = {
    "read": 0, "write": 1, "fstat": 5, "lseek": 8, "poll": 7, "select": 23, "pselect6": 270, "ppoll": 271,
    "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "mremap": 25,
    "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "rt_sigpending": 127, "rt_sigtimedwait": 128,
    "rt_sigsuspend": 130, "sigaltstack": 131, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "preadv": 295,
    "pwritev": 296, "pipe": 22, "pipe2": 293, "dup": 32,
    "pause": 34, "nanosleep": 35, "clock_nanosleep": 230, "getitimer": 36, "setitimer": 38, "alarm": 37, "getpid": 39,
    "gettid": 186, "getppid": 110, "getuid": 102, "geteuid": 107, "getgid": 104, "getegid": 108, "getresuid": 118,
    "getresgid": 120, "getgroups": 115, "getpgrp": 111, "setsid": 112, "setpgid": 109,
    "exit": 60, "exit_group": 231, "wait4": 61, "waitid": 247, "uname": 63, "getcwd": 79,
    "chdir": 80, "fchdir": 81, "umask": 95, "stat": 4, "lstat": 6, "newfstatat": 262, "statx": 332, "access": 21,
    "faccessat": 269, "faccessat2": 439, "readlink": 89, "readlinkat": 267,
    "getdents": 78, "getdents64": 217, "statfs": 137, "fstatfs": 138, "gettimeofday": 96, "time": 201, "times": 100,
    "clock_gettime": 228, "clock_getres": 229, "getrusage": 98, "getrlimit": 97,
    "sched_yield": 24, "sched_get_priority_max": 146, "sched_get_priority_min": 147, "getcpu": 309,
    "set_tid_address": 218, "set_robust_list": 273, "get_robust_list": 274,
    "rseq": 334, "membarrier": 324, "arch_prctl": 158, "capget": 125, "getrandom": 318, "mlock": 149, "munlock": 150,
    "epoll_create": 213, "epoll_create1": 291, "epoll_ctl": 233, "epoll_wait": 232, "epoll_pwait": 281,
    "epoll_pwait2": 441, "eventfd": 284, "eventfd2": 290, "signalfd": 282, "signalfd4": 289, "timerfd_create": 283,
    "timerfd_settime": 286, "timerfd_gettime": 287, "timer_create": 222, "timer_settime": 223, "timer_gettime": 224,
    "timer_getoverrun": 225, "timer_delete": 226, "sendfile": 40, "copy_file_range": 326,
    "sendto": 44, "recvfrom": 45, "recvmsg": 47, "shutdown": 48, "getsockname": 51, "getpeername": 52, "getxattr": 191, "lgetxattr": 192, "fgetxattr": 193, "listxattr": 194,
    "llistxattr": 195, "flistxattr": 196, "restart_syscall": 219,
}
WRITE = {
    "rename": 82, "renameat": 264, "renameat2": 316, "mkdir": 83, "mkdirat": 258, "rmdir": 84,
    "creat": 85, "link": 86, "linkat": 265, "unlink": 87, "unlinkat": 263, "symlink": 88, "symlinkat": 266,
    "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "chown": 92, "fchown": 93, "lchown": 94,
    "fchownat": 260, "utime": 132, "utimes": 235, "utimensat": 280, "futimesat": 261,
}
CHECKED = {
    "clone": 56, "clone3": 435, "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "prctl": 157, "ioctl": 16,
    "fcntl": 72, "socketpair": 53, "prlimit64": 302, "personality": 135, "kill": 62, "tgkill": 234, "tkill": 200,
    "memfd_create": 319, "ftruncate": 77, "truncate": 76, "fallocate": 285, "setrlimit": 160, "setpriority": 141,
    "close": 3, "dup2": 33, "dup3": 292, "close_range": 436, "open": 2, "openat": 257, "openat2": 437,
    "flock": 73, "fsync": 74, "fdatasync": 75, "sync_file_range": 277, "msync": 26, "fadvise64": 221, "madvise": 28,
    "preadv2": 327, "pwritev2": 328, "futex": 202, "futex_waitv": 449, "sendmsg": 46, "setsockopt": 54, "getsockopt": 55,
    "getpriority": 140, "sched_getaffinity": 204, "sched_getparam": 143, "sched_getscheduler": 145, "getpgid": 121, "getsid": 124,
}

# Numbers on aarch64, by the names above. A name that is not here does not exist there: its C library uses another of
# the calls (openat for open, ppoll for poll). From linux/include/uapi/asm-generic/unistd.h.
AARCH64 = {
    "read": 63, "write": 64, "fstat": 80, "lseek": 62, "pselect6": 72, "ppoll": 73, "mmap": 222, "mprotect": 226,
    "munmap": 215, "brk": 214, "mremap": 216, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139,
    "rt_sigpending": 136, "rt_sigtimedwait": 137, "rt_sigsuspend": 133, "sigaltstack": 132, "pread64": 67, "pwrite64":
    68, "readv": 65, "writev": 66, "preadv": 69, "pwritev": 70, "pipe2": 59, "dup": 23, "nanosleep": 101,
    "clock_nanosleep": 115, "getitimer": 102, "setitimer": 103, "getpid": 172, "gettid": 178, "getppid": 173, "getuid":
    174, "geteuid": 175, "getgid": 176, "getegid": 177, "getresuid": 148, "getresgid": 150, "getgroups": 158, "setsid":
    157, "setpgid": 154, "exit": 93, "exit_group": 94, "wait4": 260, "waitid": 95, "uname": 160, "getcwd": 17, "chdir":
    49, "fchdir": 50, "umask": 166, "newfstatat": 79, "statx": 291, "faccessat": 48, "faccessat2": 439, "readlinkat":
    78, "getdents64": 61, "statfs": 43, "fstatfs": 44, "gettimeofday": 169, "times": 153, "clock_gettime": 113,
    "clock_getres": 114, "getrusage": 165, "getrlimit": 163, "sched_yield": 124, "sched_get_priority_max": 125,
    "sched_get_priority_min": 126, "getcpu": 168, "set_tid_address": 96, "set_robust_list": 99, "get_robust_list": 100,
    "rseq": 293, "membarrier": 283, "capget": 90, "getrandom": 278, "mlock": 228, "munlock": 229, "epoll_create1": 20,
    "epoll_ctl": 21, "epoll_pwait": 22, "epoll_pwait2": 441, "eventfd2": 19, "signalfd4": 74, "timerfd_create": 85,
    "timerfd_settime": 86, "timerfd_gettime": 87, "timer_create": 107, "timer_settime": 110, "timer_gettime": 108,
    "timer_getoverrun": 109, "timer_delete": 111, "sendfile": 71, "copy_file_range": 285, "sendto": 206, "recvfrom":
    207, "recvmsg": 212, "shutdown": 210, "getsockname": 204, "getpeername": 205, "getxattr": 8, "lgetxattr": 9,
    "fgetxattr": 10, "listxattr": 11, "llistxattr": 12, "flistxattr": 13, "restart_syscall": 128, "renameat": 38,
    "renameat2": 276, "mkdirat": 34, "linkat": 37, "unlinkat": 35, "symlinkat": 36, "fchmod": 52, "fchmodat": 53,
    "fchmodat2": 452, "fchown": 55, "fchownat": 54, "utimensat": 88, "clone": 220, "clone3": 435, "execve": 221,
    "execveat": 281, "prctl": 167, "ioctl": 29, "fcntl": 25, "socketpair": 199, "prlimit64": 261, "personality": 92,
    "kill": 129, "tgkill": 131, "tkill": 130, "memfd_create": 279, "ftruncate": 46, "truncate": 45, "fallocate": 47,
    "setrlimit": 164, "setpriority": 140, "close": 57, "dup3": 24, "close_range": 436, "openat": 56, "openat2": 437,
    "flock": 32, "fsync": 82, "fdatasync": 83, "sync_file_range": 84, "msync": 227, "fadvise64": 223, "madvise": 233,
    "preadv2": 286, "pwritev2": 287, "futex": 98, "futex_waitv": 449, "sendmsg": 211, "setsockopt": 208, "getsockopt":
    209, "getpriority": 141, "sched_getaffinity": 123, "sched_getparam": 121, "sched_getscheduler": 120, "getpgid": 155,
    "getsid": 156,
}

EPERM, EBADF, EAGAIN, EINVAL, ENOTTY, EFBIG, ENOLCK, ENOSYS, EOPNOTSUPP = 1, 9, 11, 22, 25, 27, 37, 38, 95
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
LD, JEQ, JGT, JGE, JSET, JA, RET, AND = 0x20, 0x15, 0x25, 0x35, 0x45, 0x05, 0x06, 0x54
NUMBER, ARCH, ARGUMENT = 0, 4, 16
X32 = 0x40000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE_THREAD, CLONE_PARENT, SIGCHLD = 0x10000, 0x8000, 17
NEW_NAMESPACE = 0x7E020000
FILE_BYTES = 64 << 20  # upper bound on a file size set by truncate or fallocate, in bytes; writes may exceed it
# ioctl requests that are allowed: TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
PRCTLS = (15, 16, 3, 23, 0x53564D41)  # allowed options of prctl: PR_SET_NAME GET_NAME GET_DUMPABLE CAPBSET_READ SET_VMA
RLIMIT_AS = 9
CHANNEL = 4  # descriptor of the channel between a session's cells and the zygote: see shim/cells.h
AF_UNIX, STREAM, SEQPACKET, CLOEXEC_OR_NONBLOCK = 1, 1, 5, 0x80800


class Filter:
    """Compiled filter. code: the instructions. pid_at: indexes of instructions whose constant must be set to the
    process's own pid.
    """

    def __init__(self, code):
        self.pid_at = [at for at, (_, _, _, k) in enumerate(code) if k is OWN_PID]
        self.length = len(code)
        self.code = b"".join(struct.pack("=HBBI", op, jt, jf, 0 if k is OWN_PID else k) for op, jt, jf, k in code)


OWN_PID = None
MACHINE = platform.machine()


def build(processes=False, degraded=False, session=False):
    """Compiles the filter of one kind of child. Raises OSError on a machine whose system calls are not in the tables.
    """
    if MACHINE not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise OSError(f"the sandbox has tables of system calls for {known}, this machine is {MACHINE}")
    rules = dict.fromkeys(READ, [ret(ALLOW)]) | dict.fromkeys(() if degraded else WRITE, [ret(ALLOW)])
    rules |= checks(processes, degraded, session)
    table = AARCH64 if MACHINE == "aarch64" else READ | WRITE | CHECKED
    numbered = {table[name]: rule for name, rule in rules.items() if name in table}
    tree = search([(number, numbered.get(number, [ret(ERROR | EPERM)])) for number in range(max(numbered) + 2)])
    head = [(LD, 0, 0, ARCH), (JEQ, 1, 0, ARCHITECTURES[MACHINE]), ret(KILL), (LD, 0, 0, NUMBER), (JGE, 0, 1, X32), ret(KILL)]
    return Filter(head + tree)


def checks(processes, degraded, session):
    allow, refuse = [ret(ALLOW)], [ret(ERROR | EPERM)]
    process = allow if processes else refuse
    own = argument_is([OWN_PID]) if degraded else allow
    self_only = argument_is([0]) if degraded else allow  # Without PID namespaces, a call can name other calls' processes.
    thread = [(LD, 0, 0, ARGUMENT), (JSET, 0, 1, NEW_NAMESPACE), ret(ERROR | EPERM)]
    if not processes:
        thread += [(JSET, 1, 0, CLONE_THREAD), ret(ERROR | EPERM)]
    if session:  # Allows the fork of a paused cell; the tid bits 0x01200000 may be set.
        fork = [(LD, 0, 0, ARGUMENT), (AND, 0, 0, 0xFEDFFFFF), (JEQ, 0, 1, CLONE_PARENT | SIGCHLD), ret(ALLOW)]
        thread = fork + thread
    return {
        "clone": [*thread, ret(ALLOW)],
        # A filter cannot read clone3's flags, which are in memory; the C library falls back to clone.
        "clone3": [ret(ERROR | ENOSYS)],
        "memfd_create": [ret(ERROR | ENOSYS)],
        "ftruncate": at_most(FILE_BYTES, at=1),
        "truncate": refuse if degraded else at_most(FILE_BYTES, at=1),
        "fallocate": [*at_most(FILE_BYTES, at=2)[:-1], *at_most(FILE_BYTES, at=3)],
        **(KEEPS_CHANNEL if session else dict.fromkeys(KEEPS_CHANNEL, allow)),
        "fork": process,
        "vfork": process,
        "execve": process,
        "execveat": process,
        "prctl": argument_is(PRCTLS),
        "ioctl": argument_is(IOCTLS, at=1, otherwise=ENOTTY),
        **shared_objects(processes),
        "getpriority": [*argument_is([0])[:-1], *argument_is([0], at=1)] if degraded else allow,
        **dict.fromkeys(("sched_getaffinity", "sched_getparam", "sched_getscheduler", "getpgid", "getsid"), self_only),
        "socketpair": STREAM_PAIR,
        "prlimit64": [*argument_is([0])[:-1], *(keeps_memory(at=1) if session else allow)],
        "setrlimit": keeps_memory(at=0) if session else allow,
        "setpriority": [*argument_is([0])[:-1], *argument_is([0, OWN_PID], at=1)] if degraded else allow,
        "personality": argument_is([0xFFFFFFFF]),
        "kill": own,
        "tgkill": own,
        "tkill": refuse if degraded else allow,
    }


# Commands of fcntl that are always allowed: F_DUPFD GETFD SETFD GETFL GETLK DUPFD_CLOEXEC. SETFL, SETLK and SETLKW have
# rules in `shared_objects`. All others are refused, such as F_SETOWN (sends signals to other processes), F_NOTIFY
# (reports what happens in a directory), leases, and sizes of pipes (the kernel counts them for all calls together).
FCNTLS, F_SETFL, F_SETLK, F_SETLKW = (0, 1, 2, 3, 5, 1030), 4, 6, 7
O_DIRECT = 0x10000 if MACHINE == "aarch64" else 0x4000
# Advice that madvise accepts: NORMAL RANDOM SEQUENTIAL WILLNEED DONTNEED FREE DONTFORK DOFORK HUGEPAGE NOHUGEPAGE
# DONTDUMP DODUMP WIPEONFORK KEEPONFORK; fadvise64 accepts the first four. Refused is advice that evicts pages of files
# (COLD, PAGEOUT), merges pages with those of other processes (MERGEABLE), or needs root.
MADVICE, FADVICE = (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19), (0, 1, 2, 3)
MS_SYNC, FUTEX_PRIVATE, FUTEX_COMMAND, FUTEX_WAKES = 4, 128, 0xFFFFFE7F, (1, 10)
SOL_SOCKET = 1
# Socket options that a call may read or set: REUSEADDR TYPE ERROR SNDBUF RCVBUF KEEPALIVE LINGER REUSEPORT PASSCRED
# PEERCRED RCVLOWAT RCVTIMEO SNDTIMEO ACCEPTCONN PROTOCOL DOMAIN. Refused: cookies, which count the sockets of all
# calls, and filters, which are programs in the kernel.
SOCKET_OPTIONS = (2, 3, 4, 7, 8, 9, 13, 15, 16, 17, 18, 20, 21, 30, 38, 39)


def shared_objects(processes):
    """Rules against channels between calls, and to the host, over files that all of them can read.

    A filter cannot see which file a descriptor stands for, so a rule holds for files in the call's own /tmp too. For
    such files, a record lock taken by a call with one process would never wait, and a flush to disk (fsync) does
    nothing: both return 0 without effect. flock, which can wait within one process, and record locks of calls with
    several processes are refused (ENOLCK).
    """
    lock = ret(ERROR | ENOLCK) if processes else ret(ERROR)
    direct = [(LD, 0, 0, ARGUMENT + 16), (JSET, 0, 1, O_DIRECT), ret(ERROR | EINVAL), ret(ALLOW)]
    # A futex in a page of a shared file could wake waiters of other calls. A call with one process needs shared futexes
    # only to join its threads: a wait is answered EAGAIN, so that the thread looks again. Calls with several processes
    # keep shared futexes.
    wakes = [(LD, 0, 0, ARGUMENT + 8), (JSET, 0, 1, FUTEX_PRIVATE), ret(ALLOW), (AND, 0, 0, FUTEX_COMMAND)]
    private_futex = [*wakes, (JEQ, 1, 0, FUTEX_WAKES[0]), (JEQ, 0, 1, FUTEX_WAKES[1]), ret(ERROR), ret(ERROR | EAGAIN)]
    option = [*argument_is([SOL_SOCKET], at=1)[:-1], *argument_is(SOCKET_OPTIONS, at=2)]
    return {
        "fcntl": cases([((F_SETLK, F_SETLKW), [lock]), ((F_SETFL,), direct), (FCNTLS, [ret(ALLOW)])], at=1),
        "open": opens(flags=1),
        "openat": opens(flags=2),
        "openat2": [ret(ERROR | ENOSYS)],  # The flags of openat2 are in memory, which a filter cannot read.
        **dict.fromkeys(("fsync", "fdatasync", "sync_file_range"), [ret(ERROR)]),
        "msync": [(LD, 0, 0, ARGUMENT + 16), (JSET, 0, 1, MS_SYNC), ret(ERROR), ret(ALLOW)],
        "fadvise64": argument_is(FADVICE, at=3),
        "madvise": argument_is(MADVICE, at=2),
        # Flags of preadv2 and pwritev2 that are refused: RWF_NOWAIT (tells if a page is in memory), RWF_DONTCACHE
        # (evicts pages), RWF_HIPRI.
        "preadv2": argument_is((0,), at=5, otherwise=EOPNOTSUPP),
        "pwritev2": argument_is((0, 2, 4, 16), at=5, otherwise=EOPNOTSUPP),
        "futex": [ret(ALLOW)] if processes else private_futex,
        "futex_waitv": [ret(ERROR | ENOSYS)],
        # Refused for calls with one process: descriptors that are being sent count towards one limit for all calls
        # together.
        "sendmsg": [ret(ALLOW)] if processes else [ret(ERROR | EPERM)],
        "setsockopt": option,
        "getsockopt": option,
        "flock": [ret(ERROR | ENOLCK)],
    }


def opens(flags):
    """Rule: refuses (EINVAL) to open a file with O_DIRECT, which goes past the page cache to the disk."""
    return [(LD, 0, 0, ARGUMENT + 8 * flags), (JSET, 0, 1, O_DIRECT), ret(ERROR | EINVAL), ret(ALLOW)]


def cases(choices, at, otherwise=EPERM):
    """Rule: takes the first rule whose values contain the argument's low 32 bits, else gives the error `otherwise`."""
    code = [(LD, 0, 0, ARGUMENT + 8 * at)]
    for values, rule in choices:
        *most, last = values
        code += [(JEQ, len(most) - n, 0, value) for n, value in enumerate(most)]
        code += [(JEQ, 0, len(rule), last), *rule]
    return [*code, ret(ERROR | otherwise)]


def ret(value):
    return (RET, 0, 0, value)


def argument_is(values, at=0, then=ALLOW, otherwise=EPERM):
    """Rule: gives `then` if the argument's low 32 bits are one of the values, else the error `otherwise`;
    `otherwise=None` allows the call instead.
    """
    tests = [(JEQ, len(values) - n, 0, value) for n, value in enumerate(values)]
    return [(LD, 0, 0, ARGUMENT + 8 * at), *tests, ret(ALLOW if otherwise is None else ERROR | otherwise), ret(then)]


def keeps_memory(at):
    """Rule: a session may read its limit on address space (`prlimit64` without a new one), but not set it: see
    limit_memory in shim/isolation.h.
    """
    other = [(LD, 0, 0, ARGUMENT + 8 * at), (JEQ, 1, 0, RLIMIT_AS), ret(ALLOW)]
    if at == 0:
        return [*other, ret(ERROR | EPERM)]
    new = ARGUMENT + 16
    return [*other, (LD, 0, 0, new), (JEQ, 0, 2, 0), (LD, 0, 0, new + 4), (JEQ, 1, 0, 0), ret(ERROR | EPERM), ret(ALLOW)]


def at_most(most, at):
    """Rule: allows the call if the argument, all 64 bits of it, is at most `most`; else it fails with EFBIG."""
    high = [(LD, 0, 0, ARGUMENT + 8 * at + 4), (JEQ, 0, 2, 0)]
    return [*high, (LD, 0, 0, ARGUMENT + 8 * at), (JGT, 0, 1, most), ret(ERROR | EFBIG), ret(ALLOW)]


# Datagram socket pairs are refused: a datagram goes to any address that its sender names, such as another call's, or
# out of the sandbox. (The kernel turns RAW into DGRAM.)
KIND_OF_PAIR = [(LD, 0, 0, ARGUMENT + 8), (AND, 0, 0, 0xFFFFFFFF ^ CLOEXEC_OR_NONBLOCK), (JEQ, 1, 0, STREAM)]
STREAM_PAIR = [*argument_is([AF_UNIX])[:-1], *KIND_OF_PAIR, (JEQ, 0, 1, SEQPACKET), ret(ALLOW), ret(ERROR | EPERM)]
# These rules keep a session's code from closing or replacing CHANNEL: `close` of it, and `dup2` or `dup3` onto it, fail
# with EBADF. `close_range` is answered ENOSYS, since a range could include CHANNEL; Python's closerange then closes one
# descriptor after the other.
KEEPS_CHANNEL = {
    "close": argument_is([CHANNEL], then=ERROR | EBADF, otherwise=None),
    "dup2": argument_is([CHANNEL], at=1, then=ERROR | EBADF, otherwise=None),
    "dup3": argument_is([CHANNEL], at=1, then=ERROR | EBADF, otherwise=None),
    "close_range": [ret(ERROR | ENOSYS)],
}


def search(leaves):
    """Compiles (number, rule) pairs to a binary search. Neighbours with the same rule become one range."""
    ranges = []
    for number, rule in leaves:
        if not ranges or ranges[-1][1] is not rule and ranges[-1][1] != rule:
            ranges.append((number, rule))
    return bisect(ranges)


def bisect(ranges):
    if len(ranges) == 1:
        return list(ranges[0][1])
    half = len(ranges) // 2
    low, high = bisect(ranges[:half]), bisect(ranges[half:])
    if len(low) <= 255:
        return [(JGE, len(low), 0, ranges[half][0]), *low, *high]
    return [(JGE, 0, 1, ranges[half][0]), (JA, 0, 0, len(low)), *low, *high]
