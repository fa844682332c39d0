/** The first fault of a tree, said by whoever meets it, for who waits for the tree's end. */
export interface Failure {
  readonly failed: Promise<never>
  readonly fail: (error: Error) => void
}

export function failure(): Failure {
  let fail: (error: Error) => void = () => {}
  const failed = new Promise<never>((_, reject) => {
    fail = reject
  })
  failed.catch(() => {}) // also seen by who waits
  return { failed, fail: error => fail(error) }
}
