/**
 * Removes known secrets from all that this process prints, whoever prints it: a command, a library, a warning of Node.
 *
 * in   texts that are written to stdout and stderr        out  the same texts; known secrets are [redacted]
 * Invariant: stdout carries data, so only a long secret is removed there (`longSecret`), and bytes are passed on as
 * they are.
 */
import { longSecret, redactSecrets } from '../../runtime/secrets/knownSecrets'

export function redactOutput(): void {
  for (const [stream, options] of [
    [process.stdout, longSecret],
    [process.stderr, {}],
  ] as const) {
    const write = stream.write.bind(stream) as (chunk: unknown, ...rest: unknown[]) => boolean
    stream.write = (chunk: unknown, ...rest: unknown[]) =>
      write(typeof chunk === 'string' ? redactSecrets(chunk, options) : chunk, ...rest)
  }
}
