/**
 * References to secrets: `{env: NAME}` or `{file: PATH}`. Configuration, facts and logs contain only the reference. The
 * value is read where it is used; knownSecrets.ts removes it from errors, logs and output. Errors name the reference.
 */
import { readFileSync } from 'node:fs'
import { z } from 'zod'
import { asError, TroupeError } from '../errors'
import { knowSecret } from './knownSecrets'

export const secretSchema = z.union(
  [z.strictObject({ env: z.string().min(1) }), z.strictObject({ file: z.string().min(1) })],
  { error: 'expected a reference to the secret, {env: NAME} or {file: PATH}, never the value itself' },
)
export type SecretRef = Readonly<z.infer<typeof secretSchema>>

/** Reads the secret's text, without the line end that editors add. @throws TroupeError config.no_secret */
export function resolveSecret(ref: SecretRef, env: NodeJS.ProcessEnv = process.env): string {
  if ('env' in ref) {
    const value = env[ref.env]
    if (value) return knowSecret(value)
    throw missing(
      `the environment variable ${ref.env} is not set, or is empty`,
      'set the variable, or refer to a file: {file: PATH}',
    )
  }
  let text: string
  try {
    text = readFileSync(ref.file, 'utf8').replace(/\r?\n$/, '')
  } catch (cause) {
    throw missing(
      `the secret's file ${ref.file} cannot be read: ${asError(cause).message}`,
      'check the path and its permissions',
      cause,
    )
  }
  if (text) return knowSecret(text)
  throw missing(`the secret's file ${ref.file} is empty`, 'write the secret into the file')
}

function missing(message: string, hint: string, cause?: unknown): TroupeError {
  return new TroupeError('config.no_secret', { boundary: 'config', retriable: false, message, hint, cause })
}
