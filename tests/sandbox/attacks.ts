/**
 * What code may try, and what has to come of it. Data for attacks.test.ts: each is bounded in time and in number.
 *
 * `says`: what it prints, where it is not stopped earlier. `in`: the levels where it applies; both where nothing is said.
 */
import type { RunRequest, RunResult, RunStatus, SandboxLevel } from '../../sandbox'

export interface Attack {
  readonly title: string
  readonly code: string
  readonly status: RunStatus | readonly RunStatus[]
  readonly says?: string | RegExp
  readonly complains?: string | RegExp
  readonly at?: SandboxLevel
  readonly more?: Partial<RunRequest>
  readonly check?: (result: RunResult) => void
}

/** Python that tries something and says only what kind of refusal it met. */
const refused = (attempt: string, setup = '') => `
import os, sys, ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*arguments):
    if libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]) < 0:
        raise OSError(ctypes.get_errno(), 'refused')
${setup}
try:
    ${attempt.trim().replaceAll('\n', '\n    ')}
    print('SUCCEEDED')
except (OSError, ValueError, ImportError) as error:
    print('refused', type(error).__name__, errno.errorcode.get(getattr(error, 'errno', None), ''))
`
const REFUSED = /^refused (?!.*SUCCEEDED)/
const late = { timeoutMs: 400 }
export const ended = ['ok', 'error', 'killed', 'timeout'] as const
export const stopped = (title: string, code: string): Attack => ({ title, code, status: 'timeout', more: late })
export const denied = (title: string, attempt: string, setup = ''): Attack => ({
  title,
  code: refused(attempt, setup),
  status: 'ok',
  says: REFUSED,
})

/** A file that every call can read: an open descriptor, and a mapping of it as an address. */
const ofShared = `import fcntl, struct
shared = os.open(os.__file__, os.O_RDONLY)
libc.mmap.restype = ctypes.c_void_p
view = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(4096), 1, 1, shared, ctypes.c_long(0)))`

/** System calls that no program needs here, by number. Arguments do not matter: they are refused before they are read. */
const unlisted = {
  acct: 163,
  add_key: 248,
  adjtimex: 159,
  cachestat: 451,
  clock_settime: 227,
  fanotify_init: 300,
  fsopen: 430,
  futex_wake: 454,
  get_mempolicy: 239,
  init_module: 175,
  inotify_init1: 294,
  io_setup: 206,
  ioperm: 173,
  iopl: 172,
  ioprio_set: 251,
  kcmp: 312,
  kexec_load: 246,
  landlock_create_ruleset: 444,
  listmount: 458,
  lookup_dcookie: 212,
  memfd_secret: 447,
  migrate_pages: 256,
  mlockall: 151,
  modify_ldt: 154,
  mount_setattr: 442,
  move_mount: 429,
  move_pages: 279,
  name_to_handle_at: 303,
  open_tree: 428,
  pidfd_getfd: 438,
  pidfd_open: 434,
  process_madvise: 440,
  process_mrelease: 448,
  process_vm_writev: 311,
  quotactl: 179,
  readahead: 187,
  reboot: 169,
  remap_file_pages: 216,
  request_key: 249,
  sched_setattr: 314,
  seccomp: 317,
  sethostname: 170,
  setns: 308,
  settimeofday: 164,
  setuid: 105,
  splice: 275,
  statmount: 457,
  swapon: 167,
  syncfs: 306,
  syslog: 103,
  tee: 276,
  umount2: 166,
  uselib: 134,
  ustat: 136,
  vhangup: 153,
  vmsplice: 278,
} as const

export const attacks: readonly Attack[] = [
  // CPU
  stopped('a loop', 'while True: pass'),
  stopped('a loop that catches everything', 'while True:\n  try:\n    while True: pass\n  except BaseException: pass'),
  stopped('a power tower', '9**9**9'),
  stopped('a backtracking expression', 'import re; re.match(r"(a+)+$", "a" * 40 + "b")'),
  stopped(
    'ignored signals',
    'import signal\nfor n in range(1, 32):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\nwhile True: pass',
  ),
  stopped('a long sleep', 'import time; time.sleep(1e6)'),
  stopped(
    'a cancelled alarm',
    'import signal\nsignal.alarm(0)\nsignal.setitimer(signal.ITIMER_REAL, 0)\nwhile True: pass',
  ),
  {
    title: 'daemon threads that spin',
    code: 'import threading\ndef spin():\n  while True: pass\nfor _ in range(3): threading.Thread(target=spin, daemon=True).start()\nprint("done")',
    status: 'ok',
    says: 'done\n',
  },
  {
    title: 'a CPU limit of its own',
    code: 'import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass',
    status: ['killed', 'timeout'],
    more: { timeoutMs: 3000 },
  },
  // memory
  {
    title: 'a list that grows',
    code: 'x = []\nwhile True: x.append(bytearray(10**6))',
    status: 'error',
    complains: 'MemoryError',
    more: { memoryMb: 128, timeoutMs: 10_000 },
  },
  { title: 'one enormous array', code: 'bytearray(1 << 40)', status: 'error', complains: 'MemoryError' },
  {
    title: 'mappings without end',
    code: 'import mmap\nm = []\nwhile True: m.append(mmap.mmap(-1, 1 << 24))',
    status: 'error',
    complains: /Error/,
  },
  {
    title: 'a raised memory limit',
    code: 'import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))',
    status: 'error',
    complains: /ValueError|PermissionError|OSError/,
  },
  {
    title: 'recursion without end',
    code: 'import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()',
    status: ['error', 'killed', 'timeout'],
    more: { timeoutMs: 3000, memoryMb: 128 },
  },
  {
    title: 'memory files',
    code: 'import os\nfds = []\nfor i in range(200):\n  fds.append(os.memfd_create("x"))\n  os.write(fds[-1], b"x" * (1 << 26))',
    status: 'error',
    complains: /OSError/,
  },
  {
    title: 'mappings by many threads',
    code: 'import mmap, threading\nm = []\ndef take():\n  try:\n    while True:\n      x = mmap.mmap(-1, 1 << 22); x[::4096] = b"x" * 1024; m.append(x)\n  except (OSError, MemoryError, ValueError): pass\nts = [threading.Thread(target=take) for _ in range(8)]\nfor t in ts: t.start()\nfor t in ts: t.join()\nprint("bounded")',
    status: ['ok', 'error', 'killed'],
    more: { memoryMb: 128, timeoutMs: 10_000 },
  },
  // processes
  denied('fork', 'os.fork()'),
  denied('a subprocess', "import subprocess\nsubprocess.run(['true'])"),
  {
    title: 'a fork bomb, where processes are allowed',
    code: 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass',
    status: 'timeout',
    at: 'full',
    more: { maxProcesses: 12, timeoutMs: 600 },
  },
  {
    title: 'a daemon with two forks and a session of its own',
    code: 'import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    time.sleep(999)\n  os._exit(0)\ntime.sleep(0.1)\nprint("left")',
    status: 'ok',
    says: 'left\n',
    at: 'full',
    more: { maxProcesses: 12 },
  },
  {
    title: 'a thread bomb',
    code: 'import threading, time\nn = 0\ntry:\n  while n < 5000:\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n    n += 1\nexcept (RuntimeError, MemoryError): pass\nprint(n < 200)',
    status: 'ok',
    says: 'True\n',
    more: { timeoutMs: 10_000 },
  },
  {
    title: 'a signal to everybody',
    code: 'import os, signal\nn = 0\nfor pid in [-1, *range(2, 5000)]:\n  if pid == os.getpid(): continue\n  try:\n    os.kill(pid, signal.SIGKILL); n += 1\n  except OSError: pass\nprint(n)',
    status: 'ok',
    says: /^[01]\n$/, // -1 alone may "succeed": there is nobody else
  },
  {
    title: 'a signal to its parent',
    code: refused('os.kill(os.getppid() or 99999, 9)'),
    status: 'ok',
    says: REFUSED,
  },
  denied('ptrace', 'syscall(101, 16, os.getppid(), 0, 0)'),
  denied('reading the memory of another', 'syscall(310, os.getppid() or 2, 0, 0, 0, 0, 0)'),
  denied('the memory file of its parent', "open(f'/proc/{os.getppid()}/mem', 'rb')"),
  denied('a descriptor of another', 'syscall(438, syscall(434, os.getppid() or 2, 0) or 0, 0, 0)'),
  // file system
  denied('the shadow file', "open('/etc/shadow')"),
  denied('the home directories', "print(os.listdir('/root'), os.listdir('/home'))"),
  {
    title: 'secrets in the environment',
    code: 'import os\nprint("must-not-leak" in str(dict(os.environ)))',
    status: 'ok',
    says: 'False\n',
  },
  denied('the environment of process 1', "print(open('/proc/1/environ').read())"),
  denied('a file in /usr', "open('/usr/x', 'w')"),
  denied('a change of the standard library', "open(os.__file__, 'a')"),
  {
    ...denied('filling /tmp', "with open('/tmp/x', 'wb') as f:\n  while True: f.write(b'x' * (1 << 20))"),
    says: /refused OSError (ENOSPC|EFBIG)|refused PermissionError/,
  },
  {
    ...denied('many files', "for i in range(100_000): open(f'/tmp/{i}', 'w').close()"),
    says: /refused OSError ENOSPC|refused PermissionError/,
  },
  {
    ...denied('a file of 10 GB', "f = open('/tmp/big', 'wb')\nf.truncate(10 << 30)"),
    says: /refused OSError (ENOSPC|EFBIG)|refused PermissionError/,
  },
  {
    title: 'a file left for the next call',
    code: "open('/tmp/left', 'w').write('x')\nprint('written')",
    status: 'ok',
    says: 'written\n',
    at: 'full',
  },
  {
    title: 'what the call before has left',
    code: "import os\nprint(os.listdir('/tmp'))",
    status: 'ok',
    says: '[]\n',
    at: 'full',
  },
  denied('mount', "syscall(165, b'x', b'/tmp', b'tmpfs', 0, 0)"),
  denied('chroot', "os.chroot('/')"),
  denied('a device node', "os.mknod('/tmp/sda', 0o60600, os.makedev(8, 0))"),
  denied('open by handle', 'syscall(304, -100, 0, 0)'),
  denied('a setuid program', "os.execv('/bin/su', ['su'])"),
  denied('a link to a file outside', "os.symlink('/etc/shadow', '/tmp/link')\nopen('/tmp/link')"),
  // network
  denied('TCP', "import socket\nsocket.create_connection(('1.1.1.1', 80), 1)"),
  denied('a listener on loopback', "import socket\nsocket.socket().bind(('127.0.0.1', 0))"),
  denied('DNS', "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))"),
  denied('an abstract socket', "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0x')"),
  denied('netlink', 'import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)'),
  denied('the metadata service', "import urllib.request\nurllib.request.urlopen('http://169.254.169.254/', timeout=1)"),
  {
    title: 'socket pairs that send to others than each other',
    code: `
import errno, socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC):
    try: print('SUCCEEDED', socket.socketpair(socket.AF_UNIX, kind))
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    try: a.sendto(b'out', '\\0elsewhere')
    except OSError: a.send(b'out')
    print(b.recv(9).decode(), end=' ')
    b.close()
    try: print('SUCCEEDED', a.sendto(b'again', '\\0elsewhere'))
    except OSError: pass
`,
    status: 'ok',
    says: 'EPERM EPERM EPERM out out out ',
  },
  // output
  {
    title: 'a flood on standard output',
    code: 'import sys\nfor _ in range(40): sys.stdout.write("x" * 1_000_000)',
    status: 'ok',
    check: result => {
      expect([result.stdout.length, result.stdoutBytes]).toEqual([65_536, 40_000_000])
    },
    more: { timeoutMs: 10_000 },
  },
  {
    title: 'a flood on standard error that never ends',
    code: 'import os\nwhile True: os.write(2, b"x" * (1 << 20))',
    status: 'timeout',
    more: { timeoutMs: 2000, maxOutputBytes: 1000 },
    check: result => {
      expect([result.stderr.length, result.stderrBytes >= 1 << 26]).toEqual([1000, true])
    },
  },
  {
    title: 'bytes that are no text',
    code: 'import sys; sys.stdout.buffer.write(bytes(range(256)))',
    status: 'ok',
    check: result => {
      expect([...result.stdout]).toEqual(Array.from({ length: 256 }, (_, byte) => byte))
    },
  },
  { title: 'half a character', code: 'print("\\ud800")', status: 'ok', says: '\\ud800\n' },
  {
    title: 'a forged frame on every descriptor',
    code: 'import os, struct\nn = 0\nfor fd in range(3, 256):\n  try:\n    os.write(fd, struct.pack("<16I", 64, 3, 1, *[0] * 13)); n += 1\n  except OSError: pass\nprint(n)',
    status: 'ok',
    says: '0\n',
  },
  { title: 'closed descriptors', code: 'import os; os.closerange(0, 256)', status: ended },
  {
    title: 'markers of a protocol',
    code: 'print("@@E\\n@@D\\ndone 0 0 1 1 1")',
    status: 'ok',
    says: '@@E\n@@D\ndone 0 0 1 1 1\n',
  },
  { title: 'an early exit', code: 'import os\nprint("part", flush=True)\nos._exit(0)', status: 'ok', says: 'part\n' },
  {
    title: 'an exit code',
    code: 'raise SystemExit(3)',
    status: 'error',
    check: result => {
      expect(result.exitCode).toBe(3)
    },
  },
  denied('a seal on its output', 'import fcntl\nfcntl.fcntl(1, 1033, 1)'),
  {
    title: 'storing data in its own input',
    code: `
import mmap, os
def reopened():
    with open('/proc/self/fd/0', 'r+b', 0) as f: f.write(b'x')
ways = [lambda: os.write(0, b'x' * (1 << 20)), lambda: os.pwrite(0, b'x', 1 << 24), lambda: os.ftruncate(0, 1 << 24),
  lambda: os.posix_fallocate(0, 0, 1 << 24), lambda: os.ftruncate(0, 0), reopened,
  lambda: mmap.mmap(0, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)]
for n, way in enumerate(ways):
    try: way()
    except OSError: continue
    print('SUCCEEDED', n)
with mmap.mmap(0, 0, mmap.MAP_SHARED, mmap.PROT_READ) as seen: print(seen[:], os.lseek(0, 0, 0))
print(input(), os.fstat(0).st_size)
`,
    status: 'ok',
    says: "b'given' 0\ngiven 5\n",
    more: { stdin: 'given' },
  },
  {
    title: 'memory taken beyond the end of its output',
    code: `
import ctypes, os, time
for fd in (1, 2): ctypes.CDLL(None).fallocate(fd, 1, ctypes.c_long(32 << 20), ctypes.c_long(64 << 20))
until = time.monotonic() + 4
while max(os.fstat(fd).st_blocks * 512 for fd in (1, 2)) > 2 << 20 and time.monotonic() < until: time.sleep(0.01)
print(time.monotonic() < until)
`,
    status: 'ok',
    says: 'True\n',
  },
  {
    title: 'attributes of its output',
    code: `
import os, shutil
n = 0
for i in range(50):
    for fd in (0, 1, '/tmp'):
        try: os.setxattr(fd, f'user.a{i}', b'x' * 60000)
        except OSError: continue
        n += 1
print(n)
try:
    open('/tmp/a', 'w').close(); open('/tmp/b', 'w').close()
except OSError: pass
else: shutil.copystat('/tmp/a', '/tmp/b')
`,
    status: 'ok',
    says: '0\n',
    more: { stdin: 'a' },
  },
  {
    title: 'flags of its output',
    code: 'import fcntl, os\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)\nprint("set")',
    status: 'ok',
    says: 'set\n',
  },
  // objects that all calls and the host share (covertChannels.ts tries to pass bits by them)
  denied('a lock on a file that others read', 'fcntl.flock(shared, fcntl.LOCK_SH)', ofShared),
  denied(
    'a lock of an open file description',
    "fcntl.fcntl(shared, 37, struct.pack('hhqqi4x', 0, 0, 0, 1, 0))",
    ofShared,
  ),
  denied('a lease on a file of others', 'fcntl.fcntl(shared, 1024, fcntl.F_RDLCK)', ofShared),
  denied(
    'notes of what happens in a directory',
    "fcntl.fcntl(os.open('/usr', os.O_RDONLY), 1026, 0x80000001)",
    ofShared,
  ),
  denied('signals to another owner of a file', 'fcntl.fcntl(shared, 8, 1)', ofShared),
  denied('the size of a pipe', 'fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)', ofShared),
  denied('a hint that stays with a file', "fcntl.fcntl(shared, 1036, struct.pack('Q', 5))", ofShared),
  denied('a descriptor that goes past the page cache', 'fcntl.fcntl(shared, fcntl.F_SETFL, os.O_DIRECT)', ofShared),
  denied('a file opened past the page cache', 'os.open(os.__file__, os.O_RDONLY | os.O_DIRECT)'),
  denied('eviction of pages', 'os.posix_fadvise(shared, 0, 0, os.POSIX_FADV_DONTNEED)', ofShared),
  denied('reading only what is in memory', 'os.preadv(shared, [bytearray(9)], 0, 8)', ofShared),
  denied('reading that leaves nothing in memory', 'os.preadv(shared, [bytearray(9)], 0, 128)', ofShared),
  denied('which pages are in memory', 'syscall(27, view, 4096, (ctypes.c_ubyte * 1)())', ofShared),
  ...([20, 21, 12] as const).map(advice =>
    denied(`advice ${advice} on pages of others`, `syscall(28, view, 4096, ${advice})`, ofShared),
  ),
  denied(
    'waking whoever waits on a file',
    'if libc.syscall(202, view, 1, 99, None, None, 0) < 1: raise OSError(1, "woke none")',
    ofShared,
  ),
  denied('waiting on a file', 'syscall(202, view, 0, ctypes.c_int.from_address(view.value).value, 0, 0, 0)', ofShared),
  denied('free memory of the machine', 'syscall(99, (ctypes.c_long * 16)())'),
  { ...denied('the times of a device', "os.utime('/dev/null')"), at: 'full' },
  denied('a cookie of a socket', 'import socket\nsocket.socketpair()[0].getsockopt(socket.SOL_SOCKET, 57, 8)'),
  denied('a filter on a socket', "import socket\nsocket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 26, b'x' * 16)"),
  denied(
    'descriptors in flight',
    "import array, socket\nsocket.socketpair()[0].sendmsg([b'x'], [(1, 1, array.array('i', [0] * 99))])",
  ),
  {
    ...denied('thousands of timers', 'for _ in range(5000): syscall(222, 1, 0, (ctypes.c_int * 1)())'),
    at: 'full',
  },
  {
    title: 'what programs do with their own files and threads',
    code: `
import asyncio, fcntl, mmap, multiprocessing, os, sqlite3, threading
with open('/tmp/own', 'w+b') as f:
    f.write(bytes(4096)); f.flush(); os.fsync(f.fileno()); os.fdatasync(f.fileno())
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with mmap.mmap(f.fileno(), 0) as m: m[:3] = b'abc'; m.flush(); m.madvise(mmap.MADV_SEQUENTIAL)
for mode in ('delete', 'wal'):
    with sqlite3.connect('/tmp/' + mode) as db:
        db.execute('pragma journal_mode=' + mode); db.execute('create table t(x)'); db.execute('insert into t values (7)')
    print(sqlite3.connect('/tmp/' + mode).execute('select x from t').fetchall())
lock, seen = multiprocessing.Lock(), []
def work(n):
    with lock: seen.append(n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
async def main(): return await asyncio.gather(*(asyncio.sleep(0, n) for n in range(3)))
print(sorted(seen), asyncio.run(main()), os.path.getsize('/tmp/own'))
`,
    status: 'ok',
    says: '[(7,)]\n[(7,)]\n[0, 1, 2, 3, 4, 5, 6, 7] [0, 1, 2] 4096\n',
    at: 'full',
  },
  {
    title: 'reading where nothing was given',
    code: 'import sys; print(repr(sys.stdin.read()))',
    status: 'ok',
    says: "''\n",
  },
  {
    title: 'a megabyte of input that is never read',
    code: 'print("done")',
    status: 'ok',
    says: 'done\n',
    more: { stdin: 'x'.repeat(1_000_000) },
  },
  // kernel
  denied('a user namespace', 'syscall(272, 0x10000000)'),
  denied('clone into a namespace', 'syscall(56, 0x20000011, 0, 0, 0, 0)'),
  denied('clone3', 'syscall(435, ctypes.create_string_buffer(88), 88)'),
  ...(
    [
      ['bpf', 321],
      ['perf', 298],
      ['userfaultfd', 323],
      ['io_uring', 425],
      ['keyctl', 250],
    ] as const
  ).map(([name, number]) => denied(name, `syscall(${number}, 0, 0, 0, 0, 0)`)),
  ...Object.entries(unlisted).map(([name, number]) => denied(name, `syscall(${number}, 0, 0, 0, 0, 0)`)),
  {
    title: 'the x32 interface',
    code: 'import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 39)\nprint("SUCCEEDED")',
    status: 'killed',
    check: result => {
      expect(result.signal).toBe('SIGSYS')
    },
  },
  ...(
    [
      ['shared memory', 29],
      ['semaphores', 64],
      ['message queues', 68],
      ['POSIX message queues', 240],
    ] as const
  ).map(([name, number]) => denied(name, `syscall(${number}, 0, 4096, 0o1600, 0)`)),
  denied('characters for a terminal', "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')"),
  denied('real-time scheduling', 'os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))'),
  denied('another personality', 'syscall(135, 0x0040000)'),
  denied('a flush of every disk', 'syscall(162)'),
  { ...denied('a change of the priority of a group', 'os.setpriority(os.PRIO_PGRP, 0, 19)'), at: 'degraded' },
  {
    title: 'a lower priority of its own',
    code: 'import os\nos.nice(1)\nos.setpriority(os.PRIO_PROCESS, os.getpid(), 19)\nprint(os.getpriority(os.PRIO_PROCESS, 0))',
    status: 'ok',
    says: '19\n',
  },
  // poison
  {
    title: 'patched builtins',
    code: 'import builtins, json\nbuiltins.print = None\njson.dumps = None\nbuiltins.len = lambda x: 0',
    status: 'ok',
  },
  {
    title: 'what patched builtins leave to the next call',
    code: 'import json\nprint(json.dumps([len("abc")]))',
    status: 'ok',
    says: '[3]\n',
  },
  {
    title: "a search of its memory for another's code",
    code: 'import gc, sys\nneedle = "CAN" + "ARY"\nfound = [x for x in gc.get_objects() if isinstance(x, (str, bytes)) and needle in str(x)]\nprint(len(found))',
    status: 'ok',
    says: '0\n',
  },
  {
    title: 'random numbers of one call',
    code: 'import random; print(random.random() == 0.8444218515250481)',
    status: 'ok',
    says: 'False\n',
  },
  {
    title: 'a module in the place of another',
    code: "import sys\nopen('/tmp/numpy.py', 'w').write('x = 1')\nsys.path.insert(0, '/tmp')\nimport numpy\nprint(numpy.x)",
    status: ['ok', 'error'],
  },
  {
    title: 'what that leaves to the next call',
    code: 'import sys\nprint("/tmp" in sys.path, "numpy" in sys.modules)',
    status: 'ok',
    says: 'False False\n',
  },
  // faults
  { title: 'a syntax error', code: 'x = 1\ny = (', status: 'error', complains: /line 2\n {4}y = \([\s\S]*SyntaxError/ },
  {
    title: 'a null pointer',
    code: 'import ctypes; ctypes.string_at(0)',
    status: 'killed',
    check: result => {
      expect(result.signal).toBe('SIGSEGV')
    },
  },
  { title: 'abort', code: 'import os; os.abort()', status: 'killed' },
  { title: 'a signal to itself', code: 'import os; os.kill(os.getpid(), 9)\nprint("on")', status: ['ok', 'killed'] },
  { title: 'no code', code: '', status: 'ok', says: '' },
  { title: 'a NUL in the code', code: 'print("a\0b")', status: 'error', complains: /null byte/ },
  { title: 'code of more than 8 MiB', code: 'x'.repeat(8 * 2 ** 20 + 1), status: 'rejected' },
  {
    title: 'objects that act at their end',
    code: 'import atexit, pickle\nclass A:\n  def __del__(self): print("del")\n  def __reduce__(self): return (print, ("reduced",))\na = A()\natexit.register(print, "exit")\npickle.loads(pickle.dumps(A()))',
    status: 'ok',
    check: result => {
      expect(Buffer.from(result.stdout).toString().split('\n').sort()).toEqual(['', 'del', 'del', 'exit', 'reduced'])
    },
  },
]
