"""The seccomp filters: the system calls that a child may make, compiled to a search tree of BPF.

in   flags: may start processes, level `degraded`, cell of a session     out  a Filter
Invariant: a system call that is not listed is refused (EPERM), so one that a newer kernel adds is refused too. Calls of
the x32 and i386 interfaces, which reach the same kernel code under other numbers, end the process.
The filter is a tree, since the kernel runs it once for every number when it is installed: a list costs four times as much.
"""

import platform
import struct

READ = {
    "read": 0, "write": 1, "fstat": 5, "lseek": 8, "poll": 7, "select": 23, "pselect6": 270, "ppoll": 271,
    "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "mremap": 25, "msync": 26, "mincore": 27, "madvise": 28,
    "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "rt_sigpending": 127, "rt_sigtimedwait": 128,
    "rt_sigsuspend": 130, "sigaltstack": 131, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "preadv": 295,
    "pwritev": 296, "preadv2": 327, "pwritev2": 328, "pipe": 22, "pipe2": 293, "dup": 32,
    "pause": 34, "nanosleep": 35, "clock_nanosleep": 230, "getitimer": 36, "setitimer": 38, "alarm": 37, "getpid": 39,
    "gettid": 186, "getppid": 110, "getuid": 102, "geteuid": 107, "getgid": 104, "getegid": 108, "getresuid": 118,
    "getresgid": 120, "getgroups": 115, "getpgrp": 111, "getpgid": 121, "getsid": 124, "setsid": 112, "setpgid": 109,
    "exit": 60, "exit_group": 231, "wait4": 61, "waitid": 247, "uname": 63, "fsync": 74, "fdatasync": 75,
    "sync_file_range": 277, "fadvise64": 221, "flock": 73, "getcwd": 79,
    "chdir": 80, "fchdir": 81, "umask": 95, "stat": 4, "lstat": 6, "newfstatat": 262, "statx": 332, "access": 21,
    "faccessat": 269, "faccessat2": 439, "open": 2, "openat": 257, "openat2": 437, "readlink": 89, "readlinkat": 267,
    "getdents": 78, "getdents64": 217, "statfs": 137, "fstatfs": 138, "gettimeofday": 96, "time": 201, "times": 100,
    "clock_gettime": 228, "clock_getres": 229, "getrusage": 98, "sysinfo": 99, "getrlimit": 97,
    "getpriority": 140, "sched_yield": 24, "sched_getaffinity": 204, "sched_getparam": 143,
    "sched_getscheduler": 145, "sched_get_priority_max": 146, "sched_get_priority_min": 147, "getcpu": 309,
    "futex": 202, "futex_waitv": 449, "set_tid_address": 218, "set_robust_list": 273, "get_robust_list": 274,
    "rseq": 334, "membarrier": 324, "arch_prctl": 158, "capget": 125, "getrandom": 318, "mlock": 149, "munlock": 150,
    "epoll_create": 213, "epoll_create1": 291, "epoll_ctl": 233, "epoll_wait": 232, "epoll_pwait": 281,
    "epoll_pwait2": 441, "eventfd": 284, "eventfd2": 290, "signalfd": 282, "signalfd4": 289, "timerfd_create": 283,
    "timerfd_settime": 286, "timerfd_gettime": 287, "timer_create": 222, "timer_settime": 223, "timer_gettime": 224,
    "timer_getoverrun": 225, "timer_delete": 226, "sendfile": 40, "copy_file_range": 326,
    "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "shutdown": 48, "getsockname": 51, "getpeername": 52,
    "setsockopt": 54, "getsockopt": 55, "getxattr": 191, "lgetxattr": 192, "fgetxattr": 193, "listxattr": 194,
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
    "close": 3, "dup2": 33, "dup3": 292, "close_range": 436,
}

EPERM, EBADF, ENOSYS, ENOTTY, EFBIG = 1, 9, 38, 25, 27
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
LD, JEQ, JGT, JGE, JSET, JA, RET, AND = 0x20, 0x15, 0x25, 0x35, 0x45, 0x05, 0x06, 0x54
NUMBER, ARCH, ARGUMENT = 0, 4, 16
X86_64, X32 = 0xC000003E, 0x40000000
CLONE_THREAD, CLONE_PARENT, SIGCHLD = 0x10000, 0x8000, 17
NEW_NAMESPACE = 0x7E020000
FILE_BYTES = 64 << 20  # upper bound on a file size set by truncate or fallocate, in bytes; writes may exceed it
# Allowed: TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
PRCTLS = (15, 16, 3, 23, 0x53564D41)  # Allowed: PR_SET_NAME GET_NAME GET_DUMPABLE CAPBSET_READ SET_VMA
FCNTLS = (8, 10, 15, 1033)  # Refused: F_SETOWN F_SETSIG F_SETOWN_EX (send signals), F_ADD_SEALS (only the zygote seals)
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


def build(processes=False, degraded=False, session=False):
    """Compiles the filter of one kind of child. Raises OSError on a machine whose system calls are not in the tables."""
    if platform.machine() != "x86_64":
        raise OSError(f"the sandbox has a table of system calls for x86_64 only, this machine is {platform.machine()}")
    rules = dict.fromkeys(READ.values(), [ret(ALLOW)])
    if not degraded:
        rules |= dict.fromkeys(WRITE.values(), [ret(ALLOW)])
    rules |= {CHECKED[name]: rule for name, rule in checks(processes, degraded, session).items()}
    tree = search([(number, rules.get(number, [ret(ERROR | EPERM)])) for number in range(max(rules) + 2)])
    head = [(LD, 0, 0, ARCH), (JEQ, 1, 0, X86_64), ret(KILL), (LD, 0, 0, NUMBER), (JGE, 0, 1, X32), ret(KILL)]
    return Filter(head + tree)


def checks(processes, degraded, session):
    allow, refuse = [ret(ALLOW)], [ret(ERROR | EPERM)]
    process = allow if processes else refuse
    own = argument_is([OWN_PID]) if degraded else allow
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
        "fcntl": argument_is(FCNTLS, at=1, then=ERROR | EPERM, otherwise=None),
        "socketpair": STREAM_PAIR,
        "prlimit64": [*argument_is([0])[:-1], *(keeps_memory(at=1) if session else allow)],
        "setrlimit": keeps_memory(at=0) if session else allow,
        "setpriority": [*argument_is([0])[:-1], *argument_is([0, OWN_PID], at=1)] if degraded else allow,
        "personality": argument_is([0xFFFFFFFF]),
        "kill": own,
        "tgkill": own,
        "tkill": refuse if degraded else allow,
    }


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
    limit_memory.
    """
    other = [(LD, 0, 0, ARGUMENT + 8 * at), (JEQ, 1, 0, RLIMIT_AS), ret(ALLOW)]
    if at == 0:
        return [*other, ret(ERROR | EPERM)]
    new = ARGUMENT + 16
    return [*other, (LD, 0, 0, new), (JEQ, 0, 2, 0), (LD, 0, 0, new + 4), (JEQ, 1, 0, 0), ret(ERROR | EPERM), ret(ALLOW)]


def at_most(most, at):
    """Rule: allows the call if the argument, all 64 bits of it, is at most `most`."""
    high = [(LD, 0, 0, ARGUMENT + 8 * at + 4), (JEQ, 0, 2, 0)]
    return [*high, (LD, 0, 0, ARGUMENT + 8 * at), (JGT, 0, 1, most), ret(ERROR | EFBIG), ret(ALLOW)]


# Datagram socket pairs are refused: a datagram goes to any address that its sender names, such as another call's, or
# out of the sandbox. (The kernel turns RAW into DGRAM.)
KIND_OF_PAIR = [(LD, 0, 0, ARGUMENT + 8), (AND, 0, 0, 0xFFFFFFFF ^ CLOEXEC_OR_NONBLOCK), (JEQ, 1, 0, STREAM)]
STREAM_PAIR = [*argument_is([AF_UNIX])[:-1], *KIND_OF_PAIR, (JEQ, 0, 1, SEQPACKET), ret(ALLOW), ret(ERROR | EPERM)]
# These rules make CHANNEL look closed to a session's code. Without close_range, Python's closerange closes one
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
