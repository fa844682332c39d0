/**
 * Puts a deadline on work that cannot be cancelled.
 * in   a promise, ms, the error to reject with      out  the promise's outcome, or that error
 */
export async function within<T>(work: T | Promise<T>, deadlineMs: number, late: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), deadlineMs)
  })
  try {
    return await Promise.race([work, deadline])
  } finally {
    clearTimeout(timer)
  }
}
