/**
 * Attacks on the container and the machine around a call: on kernel interfaces, devices, socket families, the container's
 * secrets and volumes, and by escapes that container runtimes once allowed. Data for attacks.test.ts, like attacks.ts.
 *
 * Several paths are there only in a container (tests/containers/attacks.test.ts puts them there, readable to the user of the sandbox).
 */
import { type Attack, denied } from './attacks'

/** Python that tries each of `items` and says SUCCEEDED with the one that worked. A refusal is an OSError. */
const noneOf = (title: string, items: string, attempt: string, setup = ''): Attack =>
  denied(
    title,
    `
for item in ${items}:
    try: ${attempt}
    except OSError: continue
    print('SUCCEEDED', item)
raise OSError(1, 'each was refused')`,
    setup,
  )

/** System calls by number. Arguments do not matter: they are refused before they are read. */
const calls: Readonly<Record<string, readonly number[]>> = {
  'mounts by descriptor (fsconfig, fsmount, fspick)': [431, 432, 433],
  'another root (pivot_root)': [155],
  'modules of the kernel (finit_module, delete_module)': [313, 176],
  'another kernel (kexec_file_load)': [320],
  'signals with forged senders (rt_sigqueueinfo, rt_tgsigqueueinfo)': [129, 297],
  'a signal by descriptor (pidfd_send_signal)': [424],
  'where memory lies (mbind, set_mempolicy, set_mempolicy_home_node)': [237, 238, 450],
  'the rest of io_uring': [426, 427],
  'rules of Landlock': [445, 446],
  'attributes of security modules': [459, 460, 461],
  'keys of memory (pkey_alloc, pkey_mprotect)': [330, 329],
  'a shadow stack (map_shadow_stack)': [453],
  'quotas by descriptor': [443],
  'watches on files (inotify, fanotify_mark)': [253, 254, 301],
  'priorities of scheduling and disks (sched_setparam, ioprio_get)': [142, 252],
  'swapping off': [168],
}

/** Families of sockets beside those of attacks.ts, by number. */
const families = {
  'the VM above (vsock)': 40,
  'frames of the network (packet)': 17,
  'ciphers of the kernel (alg)': 38,
  'frames past the kernel (xdp)': 44,
  'keys of IPsec (key)': 15,
  'a bus of cars (can)': 29,
  bluetooth: 31,
  tipc: 30,
} as const

/** Files of the kernel that change the container or the machine. */
const kernelFiles: Readonly<Record<string, readonly string[]>> = {
  'a program for every crash (core_pattern)': ['/proc/sys/kernel/core_pattern', '/proc/sys/kernel/modprobe'],
  'a restart of the machine (sysrq)': ['/proc/sysrq-trigger'],
  'a program for an empty cgroup (release_agent)': [
    '/sys/fs/cgroup/release_agent',
    '/sys/fs/cgroup/rdma/release_agent',
    '/sys/fs/cgroup/memory/release_agent',
  ],
  'its own limit of memory': ['/sys/fs/cgroup/memory/memory.limit_in_bytes', '/sys/fs/cgroup/memory.max'],
  'a life when memory ends (oom_score_adj)': ['/proc/self/oom_score_adj', '/proc/1/oom_score_adj'],
  'users of its own (uid_map)': ['/proc/self/uid_map', '/proc/self/setgroups', '/proc/1/uid_map'],
  'memory past its protection (/proc/self/mem)': ['/proc/self/mem', '/proc/thread-self/mem'],
  'a share of the core of its group (autogroup)': ['/proc/self/autogroup', '/proc/1/autogroup'],
  'the program that runs it (/proc/self/exe)': ['/proc/self/exe', '/proc/1/exe'],
  'events of devices (uevent_helper)': ['/sys/kernel/uevent_helper'],
}

/** Files that tell about the container, or are its secrets. */
const containerFiles: Readonly<Record<string, readonly string[]>> = {
  'a secret of the container': ['/run/secrets/token'],
  'the volume of the runs': ['/runs/checkpoint'],
  'the token of a cluster': ['/var/run/secrets/kubernetes.io/serviceaccount/token'],
  'names of the network': ['/etc/hosts', '/etc/resolv.conf', '/etc/hostname'],
  'the mounts of the container': ['/proc/self/mountinfo', '/proc/1/mountinfo', '/proc/mounts'],
  'addresses and memory of the kernel': ['/proc/kallsyms', '/proc/kcore', '/sys/kernel/notes'],
}

const devices = [
  'mem',
  'kmsg',
  'kvm',
  'fuse',
  'net/tun',
  'loop-control',
  'vda',
  'sda',
  'userfaultfd',
  'vhost-vsock',
  'ptmx',
]
const list = (items: readonly (string | number)[]) => JSON.stringify(items)

export const outerAttacks: readonly Attack[] = [
  ...Object.entries(calls).map(([title, numbers]) => noneOf(title, list(numbers), 'syscall(item, 0, 0, 0, 0, 0)')),
  ...Object.entries(families).map(([title, family]) =>
    noneOf(`a socket to ${title}`, '(1, 2, 3, 5)', `socket.socket(${family}, item, 0)`, 'import socket'),
  ),
  ...Object.entries(kernelFiles).map(([title, paths]) =>
    noneOf(title, list(paths), "os.write(os.open(item, os.O_WRONLY), b'0')"),
  ),
  ...Object.entries(containerFiles).map(([title, paths]) => noneOf(title, list(paths), "open(item, 'rb').read(1)")),
  noneOf('devices of the machine', list(devices), "os.open('/dev/' + item, os.O_RDWR)"),
  noneOf(
    'a cgroup of its own',
    list(['/sys/fs/cgroup', '/sys/fs/cgroup/memory', '/sys/fs/cgroup/pids']),
    "os.mkdir(item + '/x')",
  ),
  noneOf(
    "the socket of the container's engine",
    list(['/var/run/docker.sock', '/run/docker.sock', '/run/containerd/containerd.sock']),
    'socket.socket(socket.AF_UNIX).connect(item)',
    'import socket',
  ),
  noneOf(
    'the root of another process',
    'range(1, 64)',
    "os.listdir(f'/proc/{item}/root/') and os.listdir(f'/proc/{item}/cwd/')",
  ),
  noneOf('the namespaces of another process', 'range(1, 64)', "os.open(f'/proc/{item}/ns/mnt', os.O_RDONLY)"),
  {
    title: 'descriptors that the runtime left open',
    code: `
import os
left = []
for n in range(3, 1024):
    try: os.fstat(n)
    except OSError: continue
    left.append(n)
print(left)`,
    status: 'ok',
    says: '[]\n',
  },
  noneOf(
    'the directory of a descriptor that the runtime left open',
    'range(3, 64)',
    "os.chdir(f'/proc/self/fd/{item}')",
  ),
  {
    title: 'the root, left by way of descriptors',
    code: `
import os
at = os.open('/', os.O_RDONLY | os.O_DIRECTORY)
for _ in range(64): at = os.open('..', os.O_RDONLY | os.O_DIRECTORY, dir_fd=at) if _ % 2 == 0 else os.dup2(at, 50)
print(os.fstat(at).st_ino == os.stat('/').st_ino)
try: print(open(os.open('etc/shadow', os.O_RDONLY, dir_fd=at)).read(), 'SUCCEEDED')
except OSError: pass`,
    status: 'ok',
    says: 'True\n',
    at: 'full', // at degraded the root cannot be opened
  },
  noneOf(
    'a file outside, by openat2 without its rules',
    list(['/etc/shadow', '/runs/checkpoint', '/proc/1/environ']),
    'syscall(437, -100, ctypes.c_char_p(item.encode()), (ctypes.c_uint64 * 3)(0, 0, 0), 24)',
  ),
  noneOf(
    'rights of a file (capabilities, lists of access)',
    list(['security.capability', 'system.posix_acl_access', 'trusted.overlay.opaque', 'user.x']),
    "os.setxattr('/tmp', item, b'x' * 20)",
  ),
  denied('a pipe with a name', "os.mkfifo('/tmp/pipe')"),
  noneOf(
    'flags and clones of a file (FS_IOC_SETFLAGS, FICLONE, FIDEDUPERANGE, FITRIM)',
    list([0x40086602, 0x40049409, 0xc0189436 - 0x100000000, 0xc0185879 - 0x100000000]),
    "fcntl.ioctl(os.open('/usr', os.O_RDONLY), item, bytes(64))",
    'import fcntl',
  ),
  noneOf(
    'relations of namespaces (NS_GET_USERNS, NS_GET_PARENT)',
    list([0xb701, 0xb702]),
    'fcntl.ioctl(0, item)',
    'import fcntl',
  ),
  denied(
    'a program with the rights of its owner, written by itself',
    "os.chmod('/tmp/own', 0o6777)\nos.execv('/tmp/own', ['own'])",
    "try: open('/tmp/own', 'wb').write(b'#!/bin/sh\\necho SUCCEEDED')\nexcept OSError: pass",
  ),
]
