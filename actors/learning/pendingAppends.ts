/**
 * Collects the appends of facts that are reported while a call of the trainer works, where nobody can await them.
 *
 * in   facts, one at a time        out  a promise that all of them are in the log
 * Invariant: a failed append is never an unhandled rejection; `recorded` rejects with its error.
 */
export interface PendingAppends<F> {
  /** Begins to append a fact; the promise may be ignored. */
  append(fact: F): Promise<void>
  /** Resolves when every fact so far is in the log; rejects if one could not be appended. */
  recorded(): Promise<void>
}

export function pendingAppends<F>(append: (fact: F) => Promise<void>): PendingAppends<F> {
  const pending: Promise<void>[] = []
  return {
    append(fact) {
      const appended = append(fact)
      appended.catch(() => {}) // `recorded` rejects with this error
      pending.push(appended)
      return appended
    },
    recorded: async () => void (await Promise.all(pending)),
  }
}
