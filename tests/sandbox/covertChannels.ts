/**
 * Ways in which two calls that run at once could pass bits to each other, through an object that both can reach. Data for
 * covertChannels.test.ts.
 *
 * `send` is Python that runs at the start of a time slot, with `bit` 0 or 1 and the slot's number `n`; `receive` is an
 * expression or a function body that returns a number in the middle of the slot. Both share `setup`. An exception counts
 * as the number -1: a refusal that depends on the other call would be a channel too.
 */
export interface Channel {
  readonly title: string
  readonly setup?: string
  readonly send: string
  readonly receive: string
}

/** Python that both sides start with. */
export const PRELUDE = `
import array, ctypes, fcntl, mmap, os, random, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*arguments):
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0: raise OSError(ctypes.get_errno(), 'refused')
    return result
SHARED = os.__file__
`

const opened = 'file = open(SHARED, "rb")\nfd = file.fileno()'
const mapped = `${opened}
view = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0))
word = ctypes.c_int.from_address(at).value`
const recordLock = (kind: number) => `struct.pack('hhqqi4x', ${kind}, 0, 0, 1, 0)`

export const channels: readonly Channel[] = [
  {
    title: 'flock on a file that both can read',
    setup: opened,
    send: 'fcntl.flock(fd, fcntl.LOCK_EX if bit else fcntl.LOCK_UN)',
    receive: `
try: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
except BlockingIOError: return 1
fcntl.flock(fd, fcntl.LOCK_UN)
return 0`,
  },
  {
    title: 'a record lock on a file that both can read',
    setup: opened,
    send: `fcntl.fcntl(fd, fcntl.F_SETLK, ${recordLock(0)} if bit else ${recordLock(2)})`,
    receive: `return struct.unpack('hhqqi4x', fcntl.fcntl(fd, fcntl.F_GETLK, ${recordLock(1)}))[0]`,
  },
  {
    title: 'a lock of an open file description',
    setup: opened,
    send: `fcntl.fcntl(fd, 37, ${recordLock(0)} if bit else ${recordLock(2)})`,
    receive: `return struct.unpack('hhqqi4x', fcntl.fcntl(fd, 36, ${recordLock(1)}))[0]`,
  },
  {
    title: 'notes of what happens in a directory',
    setup: `
folder = os.open(os.path.dirname(SHARED), os.O_RDONLY)
seen = [0]
def note(*_): seen[0] += 1
signal.signal(signal.SIGIO, note)
try: fcntl.fcntl(folder, 1026, 0x80000001)
except OSError: pass`,
    send: 'if bit:\n  with open(SHARED, "rb", 0) as f: f.read(64)',
    receive: 'was, seen[0] = seen[0], 0\nreturn was',
  },
  {
    title: 'pages that one evicts and the other finds out of memory',
    // The file is one that nothing has open, and the mapping is not touched: pages in use are not evicted.
    setup: `
file = open(os.path.join(os.path.dirname(SHARED), 'turtle.py'), 'rb', 0)
fd = file.fileno()
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0))
resident = (ctypes.c_ubyte * 1)()`,
    send: 'os.pread(fd, 4096, 0) if bit else os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)',
    receive: `
try: return len(os.preadv(fd, [bytearray(64)], 0, 8))
except BlockingIOError: return 0
except OSError: pass
syscall(27, at, 4096, resident)
return resident[0] & 1`,
  },
  {
    title: 'a futex in a page of a file that both can read',
    setup: mapped,
    send: 'if bit: libc.syscall(202, ctypes.c_void_p(at), 0, word, ctypes.byref((ctypes.c_long * 2)(0, 14_000_000)), None, 0)',
    receive: 'return syscall(202, at, 1, 99, 0, 0, 0)',
  },
  {
    title: 'free memory of the machine',
    setup: 'kept = []',
    send: "kept[:] = [bytearray(b'x') * (24 << 20)] if bit else []",
    receive: 'info = (ctypes.c_long * 16)()\nsyscall(99, info)\nreturn info[5]',
  },
  {
    title: 'the times of a device',
    send: "if bit: os.utime('/dev/null')",
    setup: "before = [os.stat('/dev/null').st_mtime_ns]",
    receive: "now, was = os.stat('/dev/null').st_mtime_ns, before[0]\nbefore[0] = now\nreturn int(now != was)",
  },
  {
    title: 'the time at which a file was last read',
    setup: 'before = [os.stat(SHARED).st_atime_ns]',
    send: 'if bit: open(SHARED, "rb").read(1)',
    receive: 'now, was = os.stat(SHARED).st_atime_ns, before[0]\nbefore[0] = now\nreturn int(now != was)',
  },
  {
    title: 'descriptors in flight',
    setup: 'pairs = []',
    send: `
for a, b in pairs: a.close(); b.close()
pairs.clear()
if bit:
  for _ in range(3):
    a, b = socket.socketpair()
    pairs.append((a, b))
    for _ in range(4): a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 100))])`,
    receive: `
a, b = socket.socketpair()
try: a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])
finally: a.close(); b.close()
return 1`,
  },
  {
    title: 'a file in /tmp and in /dev/shm',
    send: `
for path in ('/tmp/bit', '/dev/shm/bits'):
  if bit: open(path, 'w').close()
  elif os.path.exists(path): os.unlink(path)`,
    receive: "return sum(os.path.exists(path) for path in ('/tmp/bit', '/dev/shm/bits'))",
  },
  {
    title: 'free space of a filesystem',
    send: "with open('/tmp/space', 'wb') as f: f.write(bytes(8 << 20) if bit else b'')",
    receive: "return sum(os.statvfs(path).f_bavail * 4096 >> 22 for path in ('/tmp', '/dev'))",
  },
  {
    title: 'a shared memory segment',
    send: 'syscall(29, 4711, 4096, 0o1666) if bit else None',
    receive: 'return syscall(29, 4711, 4096, 0o666)',
  },
  {
    title: 'a semaphore, a message queue',
    send: 'syscall(64, 4711, 1, 0o1666)\nsyscall(68, 4711, 0o1666)\nsyscall(240, b"/bits", 0o102, 0o666, 0)',
    receive: 'return syscall(64, 4711, 1, 0o666)',
  },
  {
    title: 'a key of a keyring',
    send: "syscall(248, b'user', b'bits' if bit else b'none', b'x', 1, -4)",
    receive: "return syscall(249, b'user', b'bits', 0, -4)",
  },
  {
    title: 'an abstract socket',
    setup: 'kept = []',
    send: "kept[:] = []\nif bit:\n  s = socket.socket(socket.AF_UNIX)\n  kept.append(s)\n  s.bind('\\\\0bits')",
    receive: "s = socket.socket(socket.AF_UNIX)\ns.bind('\\\\0bits')\nreturn 1",
  },
  {
    title: 'numbers of processes and threads',
    send: 'if bit:\n  for _ in range(5):\n    t = threading.Thread(target=int)\n    t.start()\n    t.join()',
    setup: 'before = [0]',
    receive: `
ids = []
t = threading.Thread(target=lambda: ids.append(threading.get_native_id()))
t.start()
t.join()
step, before[0] = ids[0] - before[0], ids[0]
return step if n else 1`,
  },
  {
    title: 'a process that is there',
    setup: 'threads, stop = [], threading.Event()',
    send: `
stop.set()
for t in threads: t.join()
threads.clear()
stop.clear()
if bit:
  for _ in range(20):
    threads.append(threading.Thread(target=stop.wait, daemon=True))
    threads[-1].start()`,
    receive: `
found = 0
for pid in range(2, 400):
  try: os.kill(pid, 0)
  except OSError: continue
  found += 1
return found`,
  },
  {
    title: 'the number of threads that are left',
    setup: 'threads, stop = [], threading.Event()',
    send: `
stop.set()
for t in threads: t.join()
threads.clear()
stop.clear()
if bit:
  for _ in range(40):
    threads.append(threading.Thread(target=stop.wait, daemon=True))
    threads[-1].start()`,
    receive: `
go, mine = threading.Event(), []
try:
  for _ in range(40):
    t = threading.Thread(target=go.wait)
    t.start()
    mine.append(t)
except RuntimeError: pass
go.set()
for t in mine: t.join()
return len(mine)`,
  },
  {
    title: 'the number of timers that are left',
    setup: `
timers = []
def take(most):
  got = []
  for _ in range(most):
    timer = ctypes.c_int()
    if libc.syscall(222, 1, None, ctypes.byref(timer)) < 0: break
    got.append(timer.value)
  return got
def give(got):
  for timer in got: libc.syscall(226, timer)`,
    send: 'give(timers)\ntimers[:] = take(20_000) if bit else []',
    receive: 'got = take(100)\ngive(got)\nreturn len(got)',
  },
  {
    title: 'the size of pipes',
    setup: 'pipes = []',
    send: `
for fd in pipes: os.close(fd)
pipes.clear()
if bit:
  for _ in range(20):
    r, w = os.pipe()
    pipes.extend((r, w))
    fcntl.fcntl(w, 1031, 1 << 20)`,
    receive: `
r, w = os.pipe()
try: return fcntl.fcntl(w, 1031, 1 << 20)
finally: os.close(r); os.close(w)`,
  },
  {
    title: 'the priority of the user',
    send: 'os.setpriority(os.PRIO_USER, 0, 19) if bit else None',
    receive: 'return os.getpriority(os.PRIO_USER, 0)',
  },
  {
    title: 'the load and the processes that /proc and sysinfo tell',
    setup: 'threads = []',
    send: 'if bit:\n  for _ in range(10): threading.Thread(target=time.sleep, args=(0.01,)).start()',
    receive: `
try: return len(os.listdir('/proc'))
except OSError: pass
info = (ctypes.c_ulong * 16)()
syscall(99, info)
return info[10] & 0xffff`,
  },
  {
    title: 'cookies of sockets',
    setup: `
before = [0]
def cookie():
  a, b = socket.socketpair()
  value = struct.unpack('Q', a.getsockopt(socket.SOL_SOCKET, 57, 8))[0]
  a.close(); b.close()
  return value`,
    send: 'if bit:\n  for _ in range(50): cookie()',
    receive: 'now = cookie()\nstep, before[0] = now - before[0], now\nreturn step',
  },
]
