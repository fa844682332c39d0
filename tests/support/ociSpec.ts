/**
 * config.json of a container of runc or crun, as Docker makes them, whose first process only waits.
 *
 * in   the container's name and limits        out  an OCI runtime specification (1.0.2)
 * Invariant: namespaces for processes, mounts, network, IPC and host name; no network but loopback; no capability for
 * the first process; the parts of /proc that tell about the machine are masked, as Docker does.
 */
import type { EnvironmentLimits } from '../../environments'

export interface OciSpecOptions {
  readonly name: string
  readonly limits: EnvironmentLimits
}

const period = 100_000
const waits = ['/bin/sh', '-c', 'while :; do sleep 86400 & wait $!; done']
const masked = [
  'acpi',
  'asound',
  'interrupts',
  'kcore',
  'keys',
  'latency_stats',
  'sched_debug',
  'scsi',
  'timer_list',
  'timer_stats',
]
const readOnly = ['bus', 'fs', 'irq', 'sys', 'sysrq-trigger']

export function ociSpec({ name, limits: { cpus, memoryMb, processes } }: OciSpecOptions) {
  const memory = memoryMb * 1024 * 1024
  const none = ['nosuid', 'noexec', 'nodev']
  return {
    ociVersion: '1.0.2',
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: waits,
      env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
      cwd: '/',
      capabilities: { bounding: [], effective: [], permitted: [] },
      noNewPrivileges: true,
    },
    root: { path: 'merged', readonly: false },
    hostname: 'environment',
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc', options: none },
      {
        destination: '/dev',
        type: 'tmpfs',
        source: 'tmpfs',
        options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
      },
      {
        destination: '/dev/pts',
        type: 'devpts',
        source: 'devpts',
        options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620'],
      },
      { destination: '/dev/shm', type: 'tmpfs', source: 'shm', options: [...none, 'mode=1777', 'size=65536k'] },
      { destination: '/sys', type: 'sysfs', source: 'sysfs', options: [...none, 'ro'] },
    ],
    linux: {
      cgroupsPath: `/troupe/${name}`,
      namespaces: ['pid', 'network', 'ipc', 'uts', 'mount'].map(type => ({ type })),
      resources: {
        devices: [
          { allow: false, access: 'rwm' },
          // null, zero, full, random, urandom, terminals
          ...[
            [1, 3],
            [1, 5],
            [1, 7],
            [1, 8],
            [1, 9],
            [5, 0],
            [5, 2],
          ].map(([major, minor]) => ({ allow: true, type: 'c', major, minor, access: 'rw' })),
          { allow: true, type: 'c', major: 136, access: 'rw' },
        ],
        memory: { limit: memory, swap: memory },
        pids: { limit: processes },
        ...(cpus === undefined ? {} : { cpu: { quota: Math.round(cpus * period), period } }),
      },
      maskedPaths: [...masked.map(name => `/proc/${name}`), '/sys/firmware'],
      readonlyPaths: readOnly.map(name => `/proc/${name}`),
    },
  }
}
