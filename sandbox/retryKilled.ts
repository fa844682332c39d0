/**
 * Repeats short work whose process was killed from outside (SIGKILL, for instance by the kernel for lack of memory):
 * such a kill says nothing about the work.
 *
 * in   work that starts a process        out  its result, or its error: the last one if it was killed `mostTries` times
 * Invariant: an error that the process itself caused, and a deadline of execFile, are never repeated.
 */

/** Upper bound on the attempts at work whose process is killed every time. */
export const mostTries = 3

/**
 * True if the process of an execFile or execFileSync call was killed by SIGKILL from outside. A kill at the call's own
 * deadline does not count: execFile marks it by `killed`. execFileSync does not, so its killSignal must stay SIGTERM.
 */
function wasKilled(thrown: unknown): boolean {
  const { signal, killed } = thrown as { readonly signal?: unknown; readonly killed?: unknown }
  return signal === 'SIGKILL' && killed !== true
}

export async function retryKilled<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (thrown) {
      if (tries === mostTries || !wasKilled(thrown)) throw thrown
    }
  }
}

/** Repeats work as `retryKilled` does, for work that blocks this thread. */
export function retryKilledSync<T>(work: () => T): T {
  for (let tries = 1; ; tries++) {
    try {
      return work()
    } catch (thrown) {
      if (tries === mostTries || !wasKilled(thrown)) throw thrown
    }
  }
}
