/**
 * Jumps of the wall clock, forwards and back, of one process and its children at a time (libfaketime).
 *
 * in   names of processes        out  the environment that each is started with; faults
 * Invariant: only the wall clock jumps: monotonic clocks go on. A process that is started again has the clock that it had.
 * Processes in a sandbox have the machine's clock, since they do not inherit the environment.
 */
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Fault, LeftOut } from './fault'

const libraries = ['x86_64-linux-gnu', 'aarch64-linux-gnu', ''].map(
  folder => `/usr/lib/${folder}/faketime/libfaketimeMT.so.1`,
)
/** Of a jump, in seconds: from seconds to a day, as often each. */
const jumpsS = [5, 60, 3600, 86_400]

export interface Clocks {
  /** Variables that a process of this name is started with. */
  env(name: string): NodeJS.ProcessEnv
  readonly faults: readonly Fault[]
  readonly leftOut: readonly LeftOut[]
  close(): void
}

/** @param names processes that may be struck, as they are now */
export function clockFaults(directory: string, names: () => readonly string[]): Clocks {
  const library = libraries.find(file => existsSync(file))
  if (library === undefined) {
    const why = 'there is no libfaketime (Debian: apt-get install faketime)'
    return { env: () => ({}), faults: [], leftOut: [{ kind: 'jump clock', why }], close() {} }
  }
  mkdirSync(directory, { recursive: true })
  const fileOf = (name: string) => join(directory, name)
  const set = (name: string, offsetS: number) => {
    writeFileSync(`${fileOf(name)}.new`, `${offsetS < 0 ? '' : '+'}${offsetS}s\n`)
    renameSync(`${fileOf(name)}.new`, fileOf(name))
  }
  const fault: Fault = {
    name: 'jump clock',
    weight: 2,
    async strike(random) {
      const all = names()
      const name = all[Math.floor(random.uniform() * all.length)]
      if (name === undefined) return undefined
      const seconds = jumpsS[Math.floor(random.uniform() * jumpsS.length)]! * (random.uniform() < 0.5 ? -1 : 1)
      set(name, seconds)
      return `jump clock of ${name} to ${seconds} s from the machine's`
    },
  }
  return {
    env(name) {
      if (!existsSync(fileOf(name))) set(name, 0)
      return {
        LD_PRELOAD: library,
        FAKETIME_TIMESTAMP_FILE: fileOf(name),
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
        FAKETIME_DISABLE_SHM: '1',
        // Seconds after which the file is read again: reading it at every call costs 42 µs.
        FAKETIME_CACHE_DURATION: '1',
      }
    },
    faults: [fault],
    leftOut: [],
    close: () => rmSync(directory, { recursive: true, force: true }),
  }
}
