/**
 * Measures how fast this machine starts processes: the lower bounds that the sandbox is compared with.
 *
 * out  rates, summed over the requested cores: C's fork + _exit; posix_spawn of a command; the bare zygote (a warm
 * interpreter that forks for each program, without isolation)
 */
import { execFile, execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)

/** Calls per second, and CPU milliseconds per call, which other load on the machine hardly changes. */
export interface Rate {
  readonly perSecond: number
  readonly cpuMs: number
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
  remove(): void
}

/** Compiles floor.c and returns the functions that measure. */
export function openFloors(): Floors {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-floor-'))
  const floor = join(directory, 'floor')
  execFileSync(process.env.CC ?? 'cc', ['-O2', '-o', floor, join(__dirname, 'floor.c')])
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
    remove: () => rmSync(directory, { recursive: true }),
  }
}
