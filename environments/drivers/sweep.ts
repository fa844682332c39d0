/**
 * Removes what environments of dead processes left behind: processes, cgroups, files.
 *
 * in   the directories below `live/`        out  the ids that were removed
 * Invariant: an environment whose owner (the Troupe process that made it) lives is left alone, unless it belongs to an
 * earlier epoch of the same run, whose owner has been replaced. A process counts as the owner only if its start time is
 * the recorded one too, except before owner.json is written.
 */
import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Store } from './store'

const run = promisify(execFile)

export interface Owner {
  readonly pid: number
  /** Start time of the process in clock ticks since boot. */
  readonly startedAt: string
  readonly run: string
  readonly epoch: number
}

/** Start time of a process in clock ticks since boot; undefined if no process has this pid. */
export function processStart(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  } catch {
    return undefined
  }
}

export async function sweep(store: Store, me: Owner): Promise<readonly string[]> {
  const removed: string[] = []
  for (const [run, epoch, id] of environmentsIn(store)) {
    const directory = join(store.live, run, epoch, id)
    const owner = read<Owner>(join(directory, 'owner.json'))
    const lives = owner !== undefined && processStart(owner.pid) === owner.startedAt
    const isReplaced = run === encodeURIComponent(me.run) && Number(epoch) < me.epoch
    // A directory without owner.json is just being made, or its maker died. Its name begins with the maker's pid, by
    // which the two are told apart.
    if (lives && !isReplaced) continue
    if (owner === undefined && processStart(Number(id.split('-')[0])) !== undefined) continue
    await remove(directory)
    removed.push(id)
  }
  return removed
}

/** Kills and removes one environment, whatever its keeper's state. */
async function remove(directory: string): Promise<void> {
  for (const file of ['keeper.pid', 'first.pid']) {
    const [pid = '', startedAt] = readText(join(directory, file)).split(' ')
    if (pid !== '' && processStart(Number(pid)) === startedAt) kill(Number(pid))
  }
  for (const cgroup of read<string[]>(join(directory, 'cgroups')) ?? []) await removeCgroup(cgroup)
  // rm(1), since names may hold bytes that are no UTF-8.
  await run('rm', ['-rf', '--', directory], { timeout: 300_000 })
}

async function removeCgroup(path: string): Promise<void> {
  for (let tries = 0; tries < 100 && existsSync(path); tries++) {
    for (const pid of readText(join(path, 'cgroup.procs')).split('\n').filter(Boolean)) kill(Number(pid))
    try {
      rmdirSync(path)
    } catch {
      await new Promise(resolve => setTimeout(resolve, 20)) // a dying process keeps its cgroup for some milliseconds
    }
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // The process has died meanwhile.
  }
}

function* environmentsIn({ live }: Store): Generator<readonly [string, string, string]> {
  for (const run of readdirSync(live))
    for (const epoch of readdirSync(join(live, run))) {
      const ids = readdirSync(join(live, run, epoch))
      for (const id of ids) yield [run, epoch, id]
    }
}

/** Removes the directory of this epoch, then that of the run, if no environment is left in it. */
export function removeEmpty(store: Store, run: string, epoch: number): void {
  for (const path of [
    join(store.live, encodeURIComponent(run), String(epoch)),
    join(store.live, encodeURIComponent(run)),
  ])
    try {
      rmdirSync(path)
    } catch {
      return // the directory holds another environment
    }
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch {
    return ''
  }
}

function read<T>(file: string): T | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as T
  } catch {
    return undefined
  }
}
