/**
 * A small file system of its own for a run's directory (tmpfs), which is filled up and emptied again.
 *
 * in   how large        out  its directory, or why there is none; faults
 * Invariant: `close` unmounts it, whatever still uses it.
 */
import { spawnSync } from 'node:child_process'
import { closeSync, mkdtempSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Fault, LeftOut } from './fault'

const longestFullMs = 9000
const chunkBytes = 2 ** 20

export interface SmallDisk {
  /** Where the run's directory may lie: on the small disk, or in the temporary directory if none can be mounted. */
  readonly directory: string
  readonly faults: readonly Fault[]
  readonly leftOut: readonly LeftOut[]
  /** True from the moment that it is being filled until `graceMs` after it has room again. */
  wasFull(graceMs: number): boolean
  close(): void
}

export function smallDisk(megabytes: number): SmallDisk {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-chaos-'))
  const size = ['-t', 'tmpfs', '-o', `size=${megabytes}m`]
  const isMounted = spawnSync('mount', [...size, 'none', directory]).status === 0
  const remove = () => rmSync(directory, { recursive: true, force: true })
  if (!isMounted) {
    const why = 'this user may not mount a tmpfs'
    return { directory, faults: [], leftOut: [{ kind: 'fill disk', why }], wasFull: () => false, close: remove }
  }
  const filler = join(directory, 'filler')
  let fullUntil = Number.NEGATIVE_INFINITY
  const fault: Fault = {
    name: 'fill disk',
    weight: 1.5,
    async strike(random) {
      const leftBytes = Math.floor(random.uniform() * 64) * 1024
      const forMs = Math.round(random.uniform() * longestFullMs)
      fullUntil = Number.POSITIVE_INFINITY
      fill(filler, leftBytes)
      await sleep(forMs)
      rmSync(filler, { force: true })
      fullUntil = performance.now()
      return `fill disk to ${leftBytes / 1024} KiB for ${forMs} ms`
    },
  }
  return {
    directory,
    faults: [fault],
    leftOut: [],
    wasFull: graceMs => performance.now() < fullUntil + graceMs,
    close() {
      spawnSync('umount', ['--lazy', directory])
      remove()
    },
  }
}

/** Writes a file until no more than so many bytes are free. */
function fill(file: string, leftBytes: number): void {
  const handle = openSync(file, 'w')
  try {
    for (;;) {
      const { bavail, bsize } = statfsSync(file)
      const more = Math.min(chunkBytes, bavail * bsize - leftBytes)
      if (more <= 0) return
      writeSync(handle, Buffer.alloc(more))
    }
  } catch {
    // Others write too, so the disk may be full before.
  } finally {
    closeSync(handle)
  }
}
