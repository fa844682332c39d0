/**
 * Counts the processes and threads of this user. RLIMIT_NPROC counts them all, so a call's own limit is added to the
 * count.
 *
 * out  the count, at most 2 s old; -1 for root, for whom the kernel does not enforce the limit
 */
import { readdir, readFile, stat } from 'node:fs/promises'

const FRESH_MS = 2000

let counted: { readonly at: number; readonly count: Promise<number> } | undefined

export function countUserProcesses(): Promise<number> {
  const user = process.geteuid?.() ?? 0
  if (user === 0) return Promise.resolve(-1)
  if (!counted || performance.now() - counted.at > FRESH_MS) counted = { at: performance.now(), count: count(user) }
  return counted.count
}

async function count(user: number): Promise<number> {
  const pids = (await readdir('/proc')).filter(name => /^\d+$/.test(name))
  const threads = await Promise.all(
    pids.map(async pid => {
      try {
        if ((await stat(`/proc/${pid}`)).uid !== user) return 0
        return Number(/^Threads:\s+(\d+)/m.exec(await readFile(`/proc/${pid}/status`, 'latin1'))?.[1] ?? 0)
      } catch {
        return 0 // The process ended between being listed and being counted.
      }
    }),
  )
  return threads.reduce((sum, n) => sum + n, 0)
}
