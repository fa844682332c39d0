/**
 * The values of secrets that this process has resolved, and the one function that removes them from a text. A server
 * that refuses a key may repeat it in its answer; so may a library, or a child process on stderr.
 *
 * in   secrets, as they are resolved; texts that come from outside
 * out  the same texts, with [redacted] in place of each secret
 * Invariant: a known secret (at least 6 characters) is removed as it is, and in the forms that JSON, a URL and base64
 * give it, from errors' messages, log lines, texts of servers and child processes about a failure, and output of the
 * command line. From results of MCP tools, which are facts and training data, only a long secret is removed
 * (`minChars`).
 */
const MIN_CHARS = 6
/**
 * Upper bound on the known secrets; beyond it, the one learned first is forgotten. Each restarted server has a fresh
 * key.
 */
const MOST = 1000

const formsOf = new Map<string, readonly string[]>()
/**
 * All forms of all known secrets, the longest first, since a form may contain a shorter one. `chars`: length of the
 * secret itself.
 */
let forms: readonly { readonly form: string; readonly chars: number }[] = []

/**
 * Learns a secret's value, and returns it. Values of fewer than 6 characters are not learned: they occur in other text.
 */
export function knowSecret(value: string): string {
  if (value.trim().length < MIN_CHARS || formsOf.has(value)) return value
  const plain = value.trim()
  const escaped = JSON.stringify(plain).slice(1, -1)
  const base64 = Buffer.from(plain).toString('base64').replace(/=+$/, '')
  formsOf.set(value, [...new Set([plain, escaped, encodeURIComponent(plain), base64])])
  for (const [oldest] of formsOf) {
    if (formsOf.size <= MOST) break
    formsOf.delete(oldest)
  }
  forms = [...formsOf]
    .flatMap(([secret, all]) => all.map(form => ({ form, chars: secret.trim().length })))
    .sort((a, b) => b.form.length - a.form.length)
  return value
}

/**
 * Returns the text with every known secret replaced. @param options minChars: length from which a secret is replaced; a
 * short one, such as a password `postgres`, is also a word of ordinary text. Default: all known secrets
 */
export function redactSecrets(text: string, { minChars = MIN_CHARS }: { readonly minChars?: number } = {}): string {
  let shown = text
  for (const { form, chars } of forms) {
    if (chars >= minChars && shown.includes(form)) shown = shown.replaceAll(form, '[redacted]')
  }
  return shown
}

/** Removes known secrets from an error's message and stack, in place. Returns the error. */
export function redactError(error: Error): Error {
  if (forms.length === 0) return error
  try {
    const message = redactSecrets(error.message)
    const stack = error.stack === undefined ? undefined : redactSecrets(error.stack)
    if (message !== error.message) error.message = message
    if (stack !== undefined && stack !== error.stack) error.stack = stack
    return error
  } catch {
    return new Error(redactSecrets(error.message)) // the error is frozen, or its message is a getter
  }
}
