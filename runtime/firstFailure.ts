/** Holds the first failure in the supervision tree. Whoever awaits the end of the run gets it. */
export interface Failure {
  readonly failed: Promise<never>
  readonly fail: (error: Error) => void
}

export function firstFailure(): Failure {
  let fail: (error: Error) => void = () => {}
  const failed = new Promise<never>((_, reject) => {
    fail = reject
  })
  failed.catch(() => {}) // prevents an unhandled rejection: the code that awaits the run handles the error
  return { failed, fail: error => fail(error) }
}
