/**
 * The values of secrets that this process knows, and the functions that remove them from a text. A server that refuses
 * a key may repeat it in its answer; so may a library, or a child process on stderr.
 *
 * in   secrets, before they are sent or given to a child process; texts that come from outside
 * out  the same texts, with [redacted] in place of each secret
 * Invariant: a known secret of at least 6 characters is removed, also in the forms of encodedForms.ts, from errors and
 * their causes, log lines, texts of facts that come from outside (journal/withoutSecrets.ts) and output of the command
 * line. A shorter value is never learned, since it occurs in ordinary text. From results of tools, which are training
 * data, and from stdout only a long secret is removed (`longSecret`). Keys that Troupe makes (generatedKey.ts) are
 * removed without being learned. A secret of the environment, a recipe or the command line is never forgotten.
 */
import { encodedForms } from './encodedForms'
import { type Form, FormIndex } from './formIndex'
import { redactGeneratedKeys } from './generatedKey'

const MIN_CHARS = 6
/** Upper bound on the known secrets that may be forgotten; beyond it, the least recently learned one is forgotten. */
const MOST_PASSING = 1000
/** Length from which a secret is removed from data, too: a shorter one, such as `postgres`, may be a word there. */
export const longSecret = { minChars: 16 } as const
/** Length from which a line of a secret of several lines, such as a key in PEM format, is a secret by itself. */
const MIN_LINE_CHARS = 16
/** Upper bound on the errors that are followed from an error: its causes, and the errors of an AggregateError. */
const MOST_CAUSES = 16

const formsOf = new Map<string, readonly Form[]>()
/** The known secrets that may be forgotten, the least recently learned first. */
const passing = new Set<string>()
const index = new FormIndex()

export interface Lifetime {
  /** True for a secret of an address that a server or another process gave: a long run may meet any number of them. */
  readonly isPassing?: boolean
}

/**
 * Learns a secret's value, and returns it: the whole value; the credentials of an Authorization header (`Bearer X`;
 * `Basic X` with its user and password); each line of a value of several lines.
 */
export function knowSecret(value: string, { isPassing = false }: Lifetime = {}): string {
  for (const part of partsOf(value)) {
    const isLasting = !isPassing || (formsOf.has(part) && !passing.has(part))
    if (!formsOf.has(part)) {
      const forms = encodedForms(part).map(form => ({ form, chars: part.length }))
      for (const form of forms) index.add(form)
      formsOf.set(part, forms)
    }
    passing.delete(part) // so that it becomes the most recently learned one
    if (!isLasting) passing.add(part)
  }
  for (const oldest of passing) {
    if (passing.size <= MOST_PASSING) break
    for (const form of formsOf.get(oldest)!) index.delete(form)
    formsOf.delete(oldest)
    passing.delete(oldest)
  }
  return value
}

function partsOf(value: string): readonly string[] {
  const whole = value.trim()
  const [, scheme = '', credentials = ''] = /^(basic|bearer|token|apikey|api-key)\s+(\S+)$/i.exec(whole) ?? []
  const userAndPassword = scheme.toLowerCase() === 'basic' ? Buffer.from(credentials, 'base64').toString('utf8') : ''
  const password = userAndPassword.slice(userAndPassword.indexOf(':') + 1)
  const lines = whole.split(/\r?\n/).filter(line => line.length >= MIN_LINE_CHARS && !line.startsWith('-----'))
  return [...new Set([whole, credentials, userAndPassword, password, ...lines].map(part => part.trim()))].filter(
    part => part.length >= MIN_CHARS,
  )
}

/** Returns the text with known secrets replaced. @param options minChars: length from which a secret is replaced */
export function redactSecrets(text: string, { minChars = MIN_CHARS }: { readonly minChars?: number } = {}): string {
  return index.redact(redactGeneratedKeys(text), minChars)
}

/**
 * Returns the beginning of a text for an error message. Known secrets are removed first, since half of one that is cut
 * would not be recognised.
 */
export const excerpt = (text: string, chars = 100): string => redactSecrets(text).slice(0, chars)

/** Returns the end of a text for an error message, without white space around it; secrets as in `excerpt`. */
export const lastExcerpt = (text: string, chars: number): string => redactSecrets(text).trim().slice(-chars)

/**
 * Removes known secrets from the messages and stacks of an error and its causes, in place. Returns the error, or a new
 * one without causes if its texts cannot be replaced.
 */
export function redactError(error: Error): Error {
  const errors = new Set<Error>([error])
  for (const { cause, errors: several } of errors as Set<Error & { readonly errors?: unknown }>) {
    for (const inner of [cause, ...(Array.isArray(several) ? several : [])])
      if (inner instanceof Error && errors.size < MOST_CAUSES) errors.add(inner)
  }
  let isWhole = true
  for (const one of errors) isWhole = redactTexts(one) && isWhole
  return isWhole ? error : new Error(redactSecrets(error.message))
}

/** Returns false if the error does not let its texts be replaced: it is frozen, or they are getters. */
function redactTexts(error: Error): boolean {
  try {
    const message = redactSecrets(error.message)
    const stack = error.stack === undefined ? undefined : redactSecrets(error.stack)
    if (message !== error.message) error.message = message
    if (stack !== undefined && stack !== error.stack) error.stack = stack
    return true
  } catch {
    return false
  }
}
