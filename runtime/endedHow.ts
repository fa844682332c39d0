/** Says how a child process ended, for error messages. */

/** `code` and `signal` as Node's `exit` and `close` events give them: exactly one is not null. */
export const endedHow = (code: number | null, signal: NodeJS.Signals | null): string =>
  signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`
