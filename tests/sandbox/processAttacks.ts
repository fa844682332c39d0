/**
 * More of what code may try, against what the kernel keeps for a process: its group and priority, its threads and limits, its
 * mappings and the files under them. Data for attacks.test.ts, like attacks.ts: each is bounded in time and in number.
 */
import { type Attack, denied, ended, stopped } from './attacks'

/** Options of prctl that change more than a name, by number. */
const prctlOptions = {
  PR_SET_PDEATHSIG: [1, 0],
  PR_SET_DUMPABLE: [4, 1],
  PR_SET_KEEPCAPS: [8, 1],
  PR_SET_SECCOMP: [22, 1],
  PR_CAPBSET_DROP: [24, 0],
  PR_SET_TSC: [26, 2],
  PR_SET_SECUREBITS: [28, 0],
  PR_SET_TIMERSLACK: [29, 1],
  PR_MCE_KILL: [33, 1],
  PR_SET_MM: [35, 1],
  PR_SET_CHILD_SUBREAPER: [36, 1],
  PR_SET_THP_DISABLE: [41, 1],
  PR_CAP_AMBIENT: [47, 4],
  PR_SET_IO_FLUSHER: [57, 1],
  PR_SET_SYSCALL_USER_DISPATCH: [59, 1],
  PR_SCHED_CORE: [62, 1],
  PR_SET_PTRACER: [0x59616d61, -1],
} as const

/** A page of machine code as a function: mprotect may make written memory executable, since libffi and compilers do so. */
const machineCode = (bytes: string) => `
import ctypes, mmap, signal
signal.signal(signal.SIGSYS, lambda *_: print("SUCCEEDED"))
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("${bytes}"))
print(ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))(), "SUCCEEDED")`

const killedBy =
  (...signals: readonly string[]): NonNullable<Attack['check']> =>
  ({ signal }) =>
    expect(signals).toContain(signal)

export const processAttacks: readonly Attack[] = [
  // group, session, priority
  denied('a session of its own, with a share of the core of its own', 'os.setsid()'),
  denied('the group of another process', 'for n in range(1, 4000): os.setpgid(0, n) if n != os.getpid() else None'),
  denied('a higher priority', 'os.nice(-5)'),
  denied('its priority back', 'os.nice(9)\nsyscall(141, 0, 0, 0)'),
  denied('another scheduling policy', 'os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))'),
  denied('every core', 'os.sched_setaffinity(0, range(os.cpu_count()))'),
  denied('the terminal', "os.open('/dev/tty', os.O_RDWR)"),
  {
    title: 'the end of its group',
    code: 'import os, signal\nsignal.signal(15, signal.SIG_IGN)\ntry: os.killpg(0, 15)\nexcept OSError: pass\nprint("there")',
    status: 'ok',
    says: 'there\n',
  },
  {
    title: 'a stop of its group',
    code: 'import os\ntry: os.kill(0, 19)\nexcept OSError: pass\nprint("there")',
    status: ['ok', 'timeout'],
    more: { timeoutMs: 400 },
  },
  stopped(
    'threads that spin while the first one sleeps',
    'import threading, time\ndef spin():\n  while True: pass\nfor _ in range(6): threading.Thread(target=spin).start()\ntime.sleep(60)',
  ),
  stopped(
    'a chain of threads that each spin for a moment',
    'import threading, time\ndef spin():\n  end = time.monotonic() + 0.004\n  while time.monotonic() < end: pass\n  threading.Thread(target=spin).start()\nfor _ in range(4): spin()\ntime.sleep(60)',
  ),
  ...Object.entries(prctlOptions).map(([name, [option, value]]) =>
    denied(`prctl ${name}`, `syscall(157, ${option}, ${value}, 0, 0, 0)`),
  ),
  denied(
    'a timer that signals threads of another process',
    'for tid in range(1, 3000):\n    if tid != os.getpid(): syscall(222, 1, (ctypes.c_int * 16)(0, 0, 10, 4, tid), (ctypes.c_int * 1)())',
  ),
  // the processor's other doors
  {
    title: 'the 32-bit interface, by interrupt 0x80',
    code: machineCode('b814000000cd80c3'),
    status: 'killed',
    check: killedBy('SIGSYS', 'SIGSEGV'),
  },
  {
    title: 'a system call with a number beyond the tables',
    code: 'import ctypes\nprint([ctypes.CDLL(None, use_errno=True).syscall(n) for n in (463, 511, 1023, 2**30 - 1)])',
    status: 'ok',
    says: '[-1, -1, -1, -1]\n',
  },
  {
    title: "the processor's identification, turned off",
    code: 'import ctypes\nctypes.CDLL(None).syscall(158, 0x1012, 0)\nprint("on")',
    status: ended,
  },
  // mappings
  {
    title: 'no memory at all',
    code: 'import ctypes\nctypes.CDLL(None).munmap(0, ctypes.c_size_t(1 << 46))\nctypes.CDLL(None).munmap(4096, ctypes.c_size_t((1 << 47) - 8192))',
    status: ['killed', 'error', 'ok'],
  },
  {
    title: "another function in the C library's place",
    code: 'import ctypes\nlibc = ctypes.CDLL(None)\nat = ctypes.cast(libc.labs, ctypes.c_void_p).value\nprint(libc.mprotect(ctypes.c_void_p(at & -4096), 8192, 7))\nctypes.memmove(at, bytes.fromhex("b807000000c3"), 6)\nprint(libc.labs(-3))',
    status: 'ok',
    says: '0\n7\n',
  },
  {
    title: 'what that leaves to the next call',
    code: 'import ctypes; print(ctypes.CDLL(None).labs(-3))',
    status: 'ok',
    says: '3\n',
  },
  {
    title: 'a mapping of a file that /tmp has no room for',
    code: 'import mmap, os\nf = os.open("/tmp/f", os.O_RDWR | os.O_CREAT)\nos.ftruncate(f, 48 << 20)\nm = mmap.mmap(f, 48 << 20)\nfor n in range(0, 48 << 20, 4096): m[n] = 1\nprint("SUCCEEDED")',
    status: 'killed',
    check: killedBy('SIGBUS', 'SIGSEGV'),
    at: 'full',
  },
  {
    ...denied(
      'code in a file of its own, mapped',
      'mmap.mmap(file, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)',
      "import mmap\nfile = os.open('/tmp/code', os.O_RDWR | os.O_CREAT, 0o700)\nos.write(file, bytes(4096))",
    ),
    at: 'full',
  },
  {
    ...denied(
      'a library of its own',
      "ctypes.CDLL('/tmp/lib.so')",
      "import _ctypes, shutil\nshutil.copy(_ctypes.__file__, '/tmp/lib.so')",
    ),
    at: 'full',
  },
  denied('a program', "os.execv('/bin/sh', ['sh', '-c', 'echo SUCCEEDED'])"),
  denied('a program by descriptor', "os.execve(os.open('/usr/bin/env', os.O_RDONLY), ['env'], {})"),
  denied('a program without fork', "os.posix_spawn('/bin/sh', ['sh', '-c', 'echo SUCCEEDED'], {})"),
  // files
  denied('a hard link to a program of the system', "os.link('/usr/bin/env', '/tmp/env')"),
  denied('a system directory, moved', "os.rename('/usr/lib', '/tmp/lib')"),
  denied('a nameless file in /usr', "os.open('/usr', os.O_TMPFILE | os.O_RDWR)"),
  {
    ...denied('a whole disk of directories', "for _ in range(600): os.mkdir('d'); os.chdir('d')", "os.chdir('/tmp')"),
    at: 'full',
  },
  {
    title: 'the directory above the root',
    code: "import os\nabove, root = os.stat('/../../..'), os.stat('/')\nprint(above.st_ino == root.st_ino, above.st_dev == root.st_dev)",
    status: 'ok',
    says: 'True True\n',
  },
  denied('an output stream longer than its limit', 'os.ftruncate(1, 1 << 40)'),
  {
    title: 'an output stream that it empties',
    code: 'import os\nos.write(1, b"x" * 100)\nos.ftruncate(1, 0)\nos.lseek(1, 0, 0)\nos.write(1, b"rest")',
    status: 'ok',
    says: 'rest',
  },
  {
    title: 'every kind of descriptor until none is left',
    code: 'import ctypes, os, select, socket\nmost, libc = 0, ctypes.CDLL(None)\nfor make in (os.pipe, select.epoll, lambda: os.eventfd(0), socket.socketpair, lambda: libc.timerfd_create(1, 0) < 0 and 1 / 0):\n  held = []\n  try:\n    for _ in range(500): held.append(make())\n  except (OSError, ArithmeticError, AttributeError): pass\n  most = max(most, len(held))\n  del held\nprint(most < 100)',
    status: 'ok',
    says: 'True\n',
  },
  // what costs the interpreter much
  stopped('a number as text without a limit', 'import sys\nsys.set_int_max_str_digits(0)\nstr(7 ** 6_000_000)'),
  {
    title: 'iterators in one another until the C stack ends',
    code: 'x = iter([])\nfor _ in range(1_000_000): x = map(int, x)\nlist(x)',
    status: ended,
    more: { timeoutMs: 3000 },
  },
  {
    title: 'a small archive of much',
    code: 'import zlib\npart = zlib.compress(bytes(1 << 24), 9)\nheld = []\nfor _ in range(400): held.append(zlib.decompress(part))',
    status: 'error',
    complains: 'MemoryError',
    more: { memoryMb: 256 },
  },
  {
    title: 'threads with stacks that do not fit',
    code: 'import threading, time\nthreading.stack_size(64 << 20)\nn = 0\ntry:\n  for _ in range(60): threading.Thread(target=time.sleep, args=(9,), daemon=True).start(); n += 1\nexcept (RuntimeError, MemoryError): pass\nprint(n < 12)',
    status: 'ok',
    says: 'True\n',
    more: { memoryMb: 512 },
  },
]
