/**
 * Mounts a small file system (tmpfs) for a run's directory, and makes a fault that fills it for a while.
 *
 * in   its size        out  its directory; the fault, or the reason why this machine cannot mount it
 * Invariant: `close` unmounts the file system, even while processes still use it; a process that exits without it does the same.
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
  /** Directory for the run: on the small file system, or a plain temporary directory if none can be mounted. */
  readonly directory: string
  readonly faults: readonly Fault[]
  readonly leftOut: readonly LeftOut[]
  /** True from the moment at which the fault begins to fill the disk until `graceMs` after the disk has room again. */
  wasFull(graceMs: number): boolean
  close(): void
}

export function smallDisk(megabytes: number): SmallDisk {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-chaos-'))
  const size = ['-t', 'tmpfs', '-o', `size=${megabytes}m`]
  const isMounted = spawnSync('mount', [...size, 'none', directory]).status === 0
  const close = () => {
    if (isMounted) spawnSync('umount', ['--lazy', directory])
    rmSync(directory, { recursive: true, force: true })
    process.off('exit', close)
  }
  process.once('exit', close)
  if (!isMounted) {
    const why = 'this user may not mount a tmpfs'
    return { directory, faults: [], leftOut: [{ kind: 'fill disk', why }], wasFull: () => false, close }
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
    close,
  }
}

/** Writes a file until at most `leftBytes` bytes are free on its file system. */
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
    // The run writes too, so the disk may be full earlier.
  } finally {
    closeSync(handle)
  }
}
