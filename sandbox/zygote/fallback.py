"""The serve loop of shim/shim.c in Python, for machines without a C compiler and for the option noShim: the same frames
and isolation, about half the speed, no sessions.

in   request frames, struct config      out  reply frames
Invariant: as in shim.c, a child's status comes from wait4 and this process's clock; its code and output are memfds.
Frames are kept in mappings that a fork leaves out, never on Python's heap.
"""

import ctypes
import fcntl
import mmap
import os
import resource
import select
import signal
import struct
import time

libc = ctypes.CDLL(None, use_errno=True)
NAMESPACES, SECCOMP, LANDLOCK, LIMITS = 1, 2, 4, 8
PROCESSES, SESSION, URGENT = 2, 4, 8
EXTRA = 2  # by so much an urgent call may exceed the bound on awake calls; the same value as in shim/admission.h
RUN, STOP, DROP, PING = 1, 2, 3, 4
READY, BEGUN, DONE, FAILED, PONG = 1, 2, 3, 4, 5
NEW_SPACES = 0x10000000 | 0x20000000 | 0x20000 | 0x8000000
SYS_CLONE, SYS_CAPSET = (220, 91) if os.uname().machine == "aarch64" else (56, 126)
SYS_CLOSE_RANGE, SYS_LANDLOCK_RESTRICT = 436, 446
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
ENOENT, ECANCELED, ENOMEM = 2, 125, 12
LANES, HEAD, REPLY = 60, struct.Struct("<14I"), struct.Struct("<18I")
TIMERS = 256  # upper bound on the timers and queued signals of a call; the same value as in shim/state.h
TRIM_S, SPARE_BYTES, PUNCH_HOLE, ANY_BYTES = 0.002, 1 << 20, 3, 1 << 62
F_ADD_SEALS, NEVER_WRITTEN = 1033, 0x10 | 4 | 2 | 1  # Seals: F_SEAL_FUTURE_WRITE, GROW, SHRINK, SEAL.


class SockFilter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


class Buffer:
    """Queue of bytes in memory that no child gets, as large as the largest frame. Pages are allotted when written."""

    def __init__(self):
        self.map = mmap.mmap(-1, 256 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.map.madvise(mmap.MADV_DONTFORK)
        self.view, self.used = memoryview(self.map), 0

    def room(self):
        return self.view[self.used : self.used + (1 << 20)]

    def drop(self, count):
        self.map.move(0, count, self.used - count)
        self.used -= count


class Call:
    def __init__(self, head, code, stdin):
        (_, _, self.id, self.flags, self.timeout_ms, self.processes, self.memory_mb, self.max_output) = head[:8]
        self.head, self.code, self.stdin = head, code, stdin
        self.timed_out = False


def sealed_file(data):
    """Returns a memfd with these bytes, which code can read but not change."""
    fd = os.memfd_create("given", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    at = 0
    while at < len(data):
        at += os.pwrite(fd, data[at : at + (1 << 20)], at)
    fcntl.fcntl(fd, F_ADD_SEALS, NEVER_WRITTEN)
    return fd


def zygote_serve(config, request):
    """Serves calls. Returns 0 in a child, whose code is on descriptor 3, and -1 in the zygote when its input ends."""
    config, request = config._obj, request._obj
    poll, inbox, outbox = select.epoll(), Buffer(), Buffer()
    waiting, lanes = [], {}
    os.set_blocking(config.input, False)
    poll.register(config.input, select.EPOLLIN)
    reply(outbox, READY, config.layers, status=os.getpid())
    while True:
        flush(config, outbox)
        for fd, _ in poll.poll(until(lanes, waiting)):
            if fd in lanes:
                poll.unregister(fd)
                finish(outbox, lanes.pop(fd), fd)
            elif fd == config.input and not receive(config, inbox):
                for pidfd in lanes:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                for call in lanes.values():
                    os.waitpid(call.pid, 0)
                return -1
        take(inbox, outbox, waiting, lanes)
        now = time.monotonic()
        for fd, call in lanes.items():
            if call.deadline <= now and not call.timed_out:
                call.timed_out = True
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        for call in lanes.values():
            trim(call, now)
        while waiting:
            call = next((call for call in waiting if call.flags & URGENT), waiting[0])
            if not has_room(config, lanes, now, EXTRA if call.flags & URGENT else 0):
                break
            waiting.remove(call)
            if call.flags & SESSION:
                refuse(outbox, call, ENOENT)
            elif begin(config, poll, outbox, lanes, call):
                for n, (name, _) in enumerate(request._fields_):
                    setattr(request, name, call.head[n])
                return 0


def trim(call, now):
    """Frees the memory of output past the captured part. The file's size still tells how much was written."""
    if now - call.trimmed < TRIM_S:
        return
    call.trimmed, call.loud = now, False
    captured = -(-call.max_output // mmap.PAGESIZE) * mmap.PAGESIZE
    for fd in (call.out, call.err):
        if os.fstat(fd).st_blocks * 512 > captured + SPARE_BYTES:
            # The hole may reach beyond the file's end, so the file's size need not be known.
            libc.fallocate(fd, PUNCH_HOLE, ctypes.c_long(captured), ctypes.c_long(ANY_BYTES))
            call.loud = True


def receive(config, inbox):
    try:
        count = os.readv(config.input, [inbox.room()])
    except BlockingIOError:
        return True
    inbox.used += count
    return count > 0


def take(inbox, outbox, waiting, lanes):
    """Takes whole frames out of the buffer and moves their bytes to memfds."""
    while inbox.used >= 4 and inbox.used >= (length := int.from_bytes(inbox.view[:4], "little")):
        head = HEAD.unpack_from(inbox.view)
        kind, number, code_end = head[1], head[2], HEAD.size + head[12]
        if kind == RUN:
            code = sealed_file(inbox.view[HEAD.size : code_end])
            stdin = sealed_file(inbox.view[code_end:length]) if head[13] else -1
            waiting.append(Call(head, code, stdin))
        elif kind == STOP:
            for fd, call in lanes.items():
                if call.id == number:
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            for call in [call for call in waiting if call.id == number]:
                waiting.remove(call)
                refuse(outbox, call, ECANCELED)
        elif kind == PING:
            reply(outbox, PONG, number)
        inbox.drop(length)


def has_room(config, lanes, now, extra):
    """Returns True if one more call may begin. A call that has run for 10 ms and now sleeps makes room for another."""
    awake = 0
    for call in lanes.values():
        if now - call.began < 0.01:
            awake += 1
            continue
        try:
            fd = os.open(f"{call.pid}/stat", os.O_RDONLY, dir_fd=config.proc)
            awake += os.read(fd, 512).rpartition(b") ")[2][:1] == b"R"
            os.close(fd)
        except OSError:
            pass
    return len(lanes) < LANES and awake < config.runnable + config.longest + extra


def until(lanes, waiting):
    if not lanes:
        return -1
    left = min((call.deadline for call in lanes.values() if not call.timed_out), default=time.monotonic() + 1)
    often = TRIM_S if any(call.loud for call in lanes.values()) else 0.005 if waiting else 0.02
    return max(0.0, min(left - time.monotonic(), often))


def begin(config, poll, outbox, lanes, call):
    """Starts a call. Returns True in the child."""
    call.out, call.err = os.memfd_create("stdout"), os.memfd_create("stderr")
    call.ready, ready = os.pipe()
    flags = signal.SIGCHLD | 0x1000 | (NEW_SPACES if config.layers & NAMESPACES else 0)
    pidfd = ctypes.c_int(-1)
    call.began = call.trimmed = time.monotonic()
    call.loud = False
    call.deadline = call.began + call.timeout_ms / 1000
    pid = libc.syscall(SYS_CLONE, ctypes.c_long(flags), None, ctypes.byref(pidfd), None, None)
    if pid == 0:
        try:
            become(config, call)
        except BaseException as error:
            os.write(2 if ready < 3 else ready, b"%d" % (getattr(error, "errno", 0) or ENOMEM))
            os._exit(1)
        return True
    os.close(ready)
    release(call.code, call.stdin)
    if pid < 0:
        release(call.out, call.err, call.ready)
        reply(outbox, FAILED, call.id, error=ctypes.get_errno())
        return False
    call.pid = pid
    lanes[pidfd.value] = call
    poll.register(pidfd.value, select.EPOLLIN)
    reply(outbox, BEGUN, call.id)
    return False


def become(config, call):
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    watch = select.poll()
    watch.register(config.self, select.POLLIN)
    if watch.poll(0):
        os._exit(1)
    os.setpgid(0, 0)
    run = call.flags & PROCESSES
    if config.layers & NAMESPACES:
        for name, text in (("setgroups", b"deny"), ("uid_map", config.uid_map), ("gid_map", config.gid_map)):
            fd = os.open(f"self/{name}", os.O_WRONLY, dir_fd=config.proc)
            os.write(fd, text)
            os.close(fd)
        size, files = (config.tmp_mb_processes, 4096) if run else (config.tmp_mb, 512)
        flags = MS_NOSUID | MS_NODEV | (0 if run else MS_NOEXEC)
        options = b"size=%dm,nr_inodes=%d,mode=700" % (size, files)
        require(libc.mount(b"tmp", config.scratch, b"tmpfs", ctypes.c_ulong(flags), options))
        os.chdir(config.scratch)
    stdin = call.stdin if call.stdin >= 0 else os.open("/dev/null", os.O_RDONLY)
    for fd, target in ((stdin, 0), (call.out, 1), (call.err, 2), (call.code, 3)):
        os.dup2(fd, target)
    if config.layers & LIMITS:
        limits = {
            "AS": config.base_bytes + (call.memory_mb << 20),
            "CPU": call.timeout_ms // 1000 + 2,
            "FSIZE": config.file_bytes,
            "NOFILE": config.open_files,
            "NPROC": call.processes + 1 if run else config.threads,
            **{"CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0},
        }
        if config.layers & NAMESPACES:
            limits["SIGPENDING"] = TIMERS
        numbers = {"MSGQUEUE": 12}
        for name, most in limits.items():
            kind = numbers.get(name) or getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))
    if config.uid > 0 and not config.layers & NAMESPACES:
        os.setresgid(config.uid, config.uid, config.uid)
        os.setresuid(config.uid, config.uid, config.uid)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    require(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if config.layers & LANDLOCK:
        require(libc.syscall(SYS_LANDLOCK_RESTRICT, config.landlock, 0))
    require(libc.syscall(SYS_CLOSE_RANGE, ctypes.c_uint(4), ctypes.c_uint(0xFFFFFFFF), 0))
    if config.layers & (NAMESPACES | LANDLOCK):
        require(libc.syscall(SYS_CAPSET, struct.pack("=Ii", 0x20080522, 0), bytes(24)))
    if config.layers & SECCOMP:
        name, length = ("filter_processes", config.length_processes) if run else ("filter", config.length)
        require(libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(own_filter(config, name, length)), 0, 0))


def own_filter(config, name, length):
    """Returns the filter with this process's pid, read by address: ctypes would cut the bytes at the first zero."""
    address = ctypes.c_void_p.from_address(ctypes.addressof(config) + getattr(type(config), name).offset).value
    program = bytearray(ctypes.string_at(address, 8 * length))
    for at in filter(None, config.pid_at):
        struct.pack_into("=I", program, 8 * at + 4, os.getpid())
    return SockFilter(length, bytes(program))


def require(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "a step of the isolation failed")


def refuse(outbox, call, error):
    reply(outbox, FAILED, call.id, error=error)
    release(call.code, call.stdin)


def finish(outbox, call, pidfd):
    _, status, usage = os.wait4(call.pid, 0)
    os.close(pidfd)
    error = os.read(call.ready, 16)
    if error:
        reply(outbox, FAILED, call.id, error=int(error))
        return release(call.out, call.err, call.ready)
    totals = [os.fstat(fd).st_size for fd in (call.out, call.err)]
    highs, lows = zip(*(divmod(total, 1 << 32) for total in totals))
    lengths = [min(total, call.max_output) for total in totals]
    wall, cpu = (int(seconds * 1e6) for seconds in (time.monotonic() - call.began, usage.ru_utime + usage.ru_stime))
    late = int(call.timed_out and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)
    reply(outbox, DONE, call.id, status, late, (wall, cpu, usage.ru_maxrss, *lengths, *lows, 0, 0, 0, 0, *highs))
    for fd, length in zip((call.out, call.err), lengths):
        os.preadv(fd, [outbox.view[outbox.used : outbox.used + length]], 0)
        outbox.used += length
    release(call.out, call.err, call.ready)


def reply(outbox, kind, number, status=0, late=0, rest=(0,) * 13, error=None):
    rest = rest if error is None else (*rest[:10], error, 0, 0)
    REPLY.pack_into(outbox.view, outbox.used, REPLY.size + rest[3] + rest[4], kind, number, status, late, *rest)
    outbox.used += REPLY.size


def flush(config, outbox):
    while outbox.used:
        try:
            outbox.drop(os.write(config.output, outbox.view[: outbox.used]))
        except BrokenPipeError:
            os._exit(0)


def release(*fds):
    for fd in fds:
        if fd >= 0:
            os.close(fd)
