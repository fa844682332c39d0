/**
 * One sample of a running run, taken from outside: its processes in /proc, its files, its log's bounds, its metrics.
 *
 * in   the run's first process, its directories, a reader of its log, its metrics        out  numbers by name
 * Names are `what` or `what:role`; a role is that of a process (train, engine, trainer, render, zygote) or a topic.
 * Processes of one role are summed. A process that ends while it is read counts 0.
 */
import { lstatSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { processTree } from '../../bench/support/processTree'
import { type TopicName, topics } from '../../messages'
import type { Journal } from '../../runtime/journal/journal'

export type Sample = Readonly<Record<string, number>>

export interface Sampled {
  readonly pid: number
  /** Directory of the run's files. */
  readonly root: string
  /** TMPDIR of the run's processes. */
  readonly temporary: string
  readonly journal: Journal
  /** Address of the run's metrics. */
  readonly metrics: string
}

export async function sampleOf(run: Sampled): Promise<Sample> {
  const counts: Record<string, number> = {}
  const add = (name: string, value: number) => {
    counts[name] = (counts[name] ?? 0) + value
  }
  processes(run.pid, add)
  files(run, add)
  for (const name of Object.keys(topics) as TopicName[]) {
    for (let partition = 0; partition < (await run.journal.partitionsOf(name)); partition++) {
      const { oldest, next } = await run.journal.offsets(name, partition)
      add(`kept:${name}`, next - oldest)
      add(`appended:${name}`, next)
    }
  }
  const scraped = await fetch(run.metrics, { signal: AbortSignal.timeout(30_000) })
  metrics(await scraped.text(), add)
  return counts
}

type Add = (name: string, value: number) => void

/** The role in a command line of Python's policy server, of the sandbox's interpreters, or of the run's first process. */
const role = /--serve (\w+)|(zygote)\.py|bin\.js (train)/

function processes(pid: number, add: Add): void {
  for (const one of processTree(pid)) {
    const name = (role.exec(one.command) ?? []).slice(1).find(found => found !== undefined) ?? 'other'
    const rollup = read(`/proc/${one.pid}/smaps_rollup`)
    const kib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(rollup)?.[1] ?? 0)
    // Pages of the mapped log and of libraries are the system's cache: it takes them back when it needs them.
    add(`memoryBytes:${name}`, (kib('Pss_Anon') + kib('Pss_Shmem')) * 1024)
    add(`pssBytes:${name}`, kib('Pss') * 1024)
    add(`rssBytes:${name}`, kib('Rss') * 1024)
    add(`descriptors:${name}`, names(`/proc/${one.pid}/fd`).length)
    add(`threads:${name}`, Number(/^Threads:\s+(\d+)$/m.exec(read(`/proc/${one.pid}/status`))?.[1] ?? 0))
    add(`processes:${name}`, 1)
    add('cpuSeconds', one.cpuMs / 1000)
  }
}

function files({ root, temporary }: Sampled, add: Add): void {
  for (const [what, directory] of [
    ['temporary', temporary],
    ['run', root],
    ['blobs', join(root, 'blobs')],
  ] as const) {
    const { count, bytes } = usageOf(directory)
    add(`files:${what}`, count)
    add(`bytes:${what}`, bytes)
  }
  add('bytes:log', usageOf(join(root, 'log')).bytes)
  add('directories:checkpoints', names(join(root, 'checkpoints')).length)
  add('directories:weights', names(join(root, 'weights')).length)
}

/** Files below a directory, and the bytes that they take on disk. A file with several names counts once. */
function usageOf(directory: string): { readonly count: number; readonly bytes: number } {
  const seen = new Set<number>()
  let bytes = 0
  const visit = (path: string): void => {
    for (const name of names(path)) {
      const entry = lstatSync(join(path, name), { throwIfNoEntry: false })
      if (entry === undefined) continue
      if (entry.isDirectory()) visit(join(path, name))
      else if (!seen.has(entry.ino)) {
        seen.add(entry.ino)
        bytes += entry.blocks * 512
      }
    }
  }
  visit(directory)
  return { count: seen.size, bytes }
}

function metrics(text: string, add: Add): void {
  const value = (pattern: RegExp) => {
    const found = pattern.exec(text)
    return found === null ? undefined : Number(found[1])
  }
  const take = (name: string, pattern: RegExp) => add(name, value(pattern) ?? 0)
  take('steps', /^troupe_step(?:\{\})? (\S+)$/m)
  take('lagSeconds:mean', /^nodejs_eventloop_lag_mean_seconds(?:\{\})? (\S+)$/m)
  take('lagSeconds:p99', /^nodejs_eventloop_lag_p99_seconds(?:\{\})? (\S+)$/m)
  take('heapBytes', /^nodejs_heap_size_used_bytes(?:\{\})? (\S+)$/m)
  take('externalBytes', /^nodejs_external_memory_bytes(?:\{\})? (\S+)$/m)
  take('decisions', /^troupe_actor_handle_seconds_count\{actor="[^"]*scheduler[^"]*"\} (\S+)$/m)
  take('decisionSeconds', /^troupe_actor_handle_seconds_sum\{actor="[^"]*scheduler[^"]*"\} (\S+)$/m)
  take('turns', /^troupe_turn_seconds_count\{[^}]*\} (\S+)$/m)
}

function names(directory: string): readonly string[] {
  try {
    return readdirSync(directory)
  } catch {
    return [] // removed, or its process ended, meanwhile
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
