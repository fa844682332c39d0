/**
 * Measures how fast this machine starts processes: the lower bounds that the sandbox is compared with.
 *
 * out  rates, summed over the requested cores: C's fork + _exit (one core); posix_spawn of a command; the bare zygote
 * (a warm interpreter that forks for each program, without isolation); the isolated floor (the zygote's C code without
 * Python)
 */
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
/** First user id of the isolated floor if the benchmark runs as root; it is above the user ids of zygotes. */
const FLOOR_UID = 215_000

/** Calls per second, and CPU milliseconds per call, which other load on the machine hardly changes. */
export interface Rate {
  readonly perSecond: number
  readonly cpuMs: number
}

/** Shape of a zygote's memory, in KiB and mappings: what a fork copies and an exit frees. */
export interface MemoryShape {
  readonly smallKib: number
  readonly hugeKib: number
  readonly mappings: number
}

export interface Floors {
  /** Rate of fork + _exit on one core. */
  fork(seconds: number): Promise<Rate>
  /**
   * Rate of posix_spawn, one loop per core. The kernel places the loops: pinned loops do less on a machine with other
   * load.
   */
  spawn(seconds: number, cores: number, command: readonly string[]): Promise<Rate>
  /** Rate of the bare zygote, one zygote per core. */
  zygote(seconds: number, cores: number, python: string, modules: string, program: string): Promise<Rate>
  /** Rate of calls that only the zygote's C code runs, from processes of this shape, one per core. */
  isolated(seconds: number, cores: number, python: string, shape: MemoryShape): Promise<Rate>
  remove(): void
}

/** Reads the shape of a zygote's memory. */
export function memoryShape(pid: number): MemoryShape {
  const text = readFileSync(`/proc/${pid}/smaps`, 'latin1')
  const sum = (name: string) =>
    [...text.matchAll(new RegExp(`^${name}:\\s+(\\d+)`, 'gm'))].reduce((total, [, kib]) => total + Number(kib), 0)
  const hugeKib = sum('AnonHugePages')
  return { smallKib: sum('Anonymous') - hugeKib, hugeKib, mappings: text.match(/^VmFlags/gm)?.length ?? 0 }
}

/** Compiles floor.c and returns the functions that measure. */
export function openFloors(): Floors {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-floor-'))
  const floor = join(directory, 'floor')
  const isolatedFloor = join(directory, 'isolatedFloor')
  const compile = (target: string, source: string) =>
    execFileSync(process.env.CC ?? 'cc', ['-O2', '-o', target, join(__dirname, source)])
  compile(floor, 'floor.c')
  compile(isolatedFloor, 'isolatedFloor.c')
  // Environment like that of a sandbox call: only these variables, and no threads of a numeric library.
  const env = { PATH: process.env.PATH ?? '', LANG: 'C.UTF-8', OPENBLAS_NUM_THREADS: '1', OMP_NUM_THREADS: '1' }
  const both = async (cores: number, command: (core: number) => readonly [string, ...string[]]) => {
    const loops = Array.from({ length: cores }, async (_, core) => {
      const [program, ...rest] = command(core)
      const [count = 0, seconds = 1, cpu = 0] = (await execute(program, rest, { env })).stdout.split(' ').map(Number)
      return { count, cpu, perSecond: count / seconds }
    })
    const all = await Promise.all(loops)
    const sum = (of: 'count' | 'cpu' | 'perSecond') => all.reduce((total, loop) => total + loop[of], 0)
    return { perSecond: sum('perSecond'), cpuMs: (1000 * sum('cpu')) / sum('count') }
  }
  return {
    fork: seconds => both(1, core => [floor, String(seconds), String(core), 'fork']),
    spawn: (seconds, cores, command) => both(cores, () => [floor, String(seconds), '-1', ...command]),
    zygote: (seconds, cores, python, modules, program) =>
      both(cores, core => [
        python,
        ...['-I', join(__dirname, 'bareZygote.py'), String(seconds), String(core), modules, program],
      ]),
    isolated: (seconds, cores, python, { smallKib, hugeKib, mappings }) =>
      both(cores, core => {
        const base = join(directory, `root${core}`)
        mkdirSync(base, { recursive: true })
        const memory = { small_kib: smallKib, huge_kib: hugeKib, mappings }
        const uid = process.getuid?.() === 0 ? FLOOR_UID + core : 0
        const settings = { core, seconds, floor: isolatedFloor, base, readable: [], uid, ...memory }
        return [python, '-I', join(__dirname, 'isolatedFloor.py'), JSON.stringify(settings)]
      }),
    remove: () => rmSync(directory, { recursive: true }),
  }
}
