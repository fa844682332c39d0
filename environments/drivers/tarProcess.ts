/**
 * Feeds a tar(1) process, and waits for its end.
 *
 * in   a process of tar, a stream for it      out  a promise of its end; its error has the end of tar's stderr
 */
import type { ChildProcess } from 'node:child_process'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { endedHow } from '../../runtime/errors'

/** Upper bound on the characters that an error quotes from the end of tar's stderr. */
const stderrTailChars = 2048

/**
 * Pipes a stream into tar. Errors of the pipe are ignored, since tar may exit before the padding after the archive's
 * end is written. If the stream breaks off, tar's exit code reports it.
 */
export const feedTar = (stream: Readable, tar: { readonly stdin: NodeJS.WritableStream }): Promise<void> =>
  pipeline(stream, tar.stdin).catch(() => {})

/** Resolves when tar exits with 0; rejects if it cannot be run or exits with another code. */
export function tarEnded(tar: ChildProcess): Promise<void> {
  let errors = ''
  tar.stderr?.setEncoding('utf8').on('data', text => {
    errors = (errors + text).slice(-stderrTailChars)
  })
  return new Promise((resolve, reject) => {
    tar.once('error', reject)
    tar.once('close', (code, signal) =>
      code === 0 ? resolve() : reject(new Error(errors.trim() || `tar ${endedHow(code, signal)}`)),
    )
  })
}
