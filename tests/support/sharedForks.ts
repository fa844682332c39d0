/**
 * Finds the fork servers that were forked from the one which the test runner shares (runner/forkServer.js): they count as
 * children of the processes that asked for them. Reads children and command lines from /proc.
 *
 * in   TROUPE_FORK_SERVER, /proc        out  pids, command lines
 */
import { readdirSync, readFileSync } from 'node:fs'

let shared: number | undefined

/** Pids of the fork servers that a process has asked the shared one for. */
export function forkServersFor(pid: number): readonly number[] {
  const socket = process.env.TROUPE_FORK_SERVER
  if (!socket) return []
  shared ??= readdirSync('/proc')
    .map(Number)
    .find(other => other > 0 && wordsOf(other)[3] === socket)
  if (shared === undefined) return []
  return pidsBelow(shared).filter(child => askedBy(wordsOf(child)) === pid)
}

/** The pid that stands behind --for on a fork server's command line. */
function askedBy(words: readonly string[]): number | undefined {
  const at = words[2] === 'troupe_policy.fork_server' ? words.indexOf('--for') : -1
  return at < 0 ? undefined : Number(words[at + 1])
}

/** The words of a process's command line; none if it has ended. */
export function wordsOf(pid: number): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    return []
  }
}

/** Reads the children of each thread of a process. Reading all processes would take as long as a child's start. */
export function pidsBelow(parent: number): readonly number[] {
  try {
    return readdirSync(`/proc/${parent}/task`).flatMap(thread =>
      readFileSync(`/proc/${parent}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    )
  } catch {
    return [] // the process, or one of its threads, has ended
  }
}
