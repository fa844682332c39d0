/**
 * Measures the memory and CPU time of this process and of all its descendants, by part of the rehearsal (node, trainer,
 * renderers, sandbox and helpers, making the model).
 *
 * in   /proc, sampled every 2 s        out  peaks by part and of the sum, MiB; CPU seconds
 * `privateMib` is memory that only one process can use (RssAnon); the rest of `residentMib` is mostly the log's file,
 * which lmdb maps: the kernel takes those pages back when other processes need memory. In `proportionalMib` (PSS) a
 * page that n mappings share counts 1/n for each, so its sum over processes is the memory that they use together.
 * Invariant: without /proc nothing is measured, and nothing fails. A process that lives less than 2 s may be missed.
 */
import { readFileSync } from 'node:fs'
import { family, servedPart } from '../io/processes'

export interface MemoryPeak {
  /** Part of the rehearsal, such as `trainer` or `renderers`, or `allParts` for the sum. */
  readonly part: string
  /** Largest number of this part's processes that lived at once. */
  readonly processes: number
  readonly residentMib: number
  readonly proportionalMib: number
  readonly privateMib: number
  /** CPU time that the part's processes used, up to their last sample. */
  readonly cpuSeconds: number
}

type Sample = Omit<MemoryPeak, 'part' | 'cpuSeconds'>
const none: Sample = { processes: 0, residentMib: 0, proportionalMib: 0, privateMib: 0 }

const sampleMs = 2000
/** Name of the sum over all parts. */
export const allParts = 'all'

export function watchMemory(): { peaks(): readonly MemoryPeak[]; close(): void } {
  const peaks = new Map<string, Sample>()
  const cpu = new Map<number, { readonly part: string; readonly seconds: number }>()
  function sample(): void {
    const parts = new Map<string, Sample>()
    for (const { pid, part, cpuSeconds, ...memory } of members()) {
      cpu.set(pid, { part, seconds: cpuSeconds })
      for (const name of [part, allParts]) {
        parts.set(
          name,
          joined(parts.get(name) ?? none, { processes: 1, ...memory }, (one, other) => one + other),
        )
      }
    }
    for (const [part, now] of parts) peaks.set(part, joined(peaks.get(part) ?? none, now, Math.max))
  }
  sample()
  const timer = setInterval(sample, sampleMs)
  return {
    peaks() {
      sample()
      const used = [...cpu.values()]
      return [...peaks].map(([part, peak]) => {
        const own = used.filter(one => part === allParts || one.part === part)
        return { part, ...peak, cpuSeconds: own.reduce((sum, { seconds }) => sum + seconds, 0) }
      })
    },
    close: () => clearInterval(timer),
  }
}

function joined(one: Sample, other: Sample, by: (one: number, other: number) => number): Sample {
  return {
    processes: by(one.processes, other.processes),
    residentMib: by(one.residentMib, other.residentMib),
    proportionalMib: by(one.proportionalMib, other.proportionalMib),
    privateMib: by(one.privateMib, other.privateMib),
  }
}

interface Member extends Omit<MemoryPeak, 'processes'> {
  readonly pid: number
}

/** Lists this process and its descendants, each with its memory and CPU time. */
function members(): readonly Member[] {
  return family().flatMap(({ pid, cpuSeconds }) => {
    const status = read(`/proc/${pid}/status`)
    if (status === undefined) return []
    const residentMib = mibIn(status, 'VmRSS')
    // The PSS of a process that changed its user cannot be read: its whole resident memory counts.
    const shares = read(`/proc/${pid}/smaps_rollup`)
    const proportionalMib = shares === undefined ? residentMib : mibIn(shares, 'Pss')
    const memory = { residentMib, proportionalMib, privateMib: mibIn(status, 'RssAnon') }
    return [{ pid, part: partOf(pid), cpuSeconds, ...memory }]
  })
}

const mibIn = (text: string, field: string): number =>
  Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(text)?.[1] ?? 0) / 1024

function partOf(pid: number): string {
  if (pid === process.pid) return 'node'
  const command = read(`/proc/${pid}/cmdline`) ?? ''
  if (command.includes('troupe_policy.model.init_model')) return 'making the model'
  const served = servedPart(command)
  return served === 'trainer' ? served : served === 'renderer' ? 'renderers' : 'sandbox and helpers'
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined // the process has ended meanwhile
  }
}
