/**
 * Faults that set the wall clock of one process and its children forwards or back (libfaketime).
 *
 * in   names of processes        out  the environment variables that each must be started with; faults
 * Invariant: only the wall clock jumps; monotonic clocks do not. A process that is restarted keeps its changed clock.
 * Processes in a sandbox have the machine's clock, since they do not inherit the environment.
 */
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Fault, LeftOut } from './fault'

const libraries = ['x86_64-linux-gnu', 'aarch64-linux-gnu', ''].map(
  folder => `/usr/lib/${folder}/faketime/libfaketimeMT.so.1`,
)
/** Sizes of a jump, in seconds; each is equally likely. */
const jumpsS = [5, 60, 3600, 86_400]

export interface Clocks {
  /** Returns the environment variables with which the process of this name must be started. */
  env(name: string): NodeJS.ProcessEnv
  readonly faults: readonly Fault[]
  readonly leftOut: readonly LeftOut[]
  close(): void
}

/** @param names returns the names of the processes whose clock may be set now */
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
        // libfaketime rereads the file after this many seconds: reading it at every call costs 42 µs.
        FAKETIME_CACHE_DURATION: '1',
      }
    },
    faults: [fault],
    leftOut: [],
    close: () => rmSync(directory, { recursive: true, force: true }),
  }
}
