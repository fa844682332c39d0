/**
 * Finds the credentials in environment variables, headers and addresses, and makes them known to the redactor.
 *
 * in   variables of this process or of a child process, names of variables to pass on, headers, addresses
 * out  knownSecrets.ts knows their values
 * Invariant: a value is learned before a program or a server gets it, so before anything can repeat it. A variable is
 * taken for a secret by its name, or because somebody else's program gets it by name. The path of an existing file is
 * none, since errors would lose the places that they name.
 */
import { existsSync, readFileSync } from 'node:fs'
import { delimiter, isAbsolute } from 'node:path'
import { knowSecret } from './knownSecrets'

type Variables = Readonly<Record<string, string | undefined>>

/** Ends of names: of variables (`OPENAI_API_KEY`, `PGPASSWORD`), headers and parameters of a URL. */
const secretName =
  /(^|[_-])(auth|authorization|cookies?|credentials?|jwt|key|pat|pwd|secret|sig|signature|token)$|(api|access|private|secret|auth)[_-]?(key|token)$|(password|passwd|passphrase|secret)$/i

/**
 * Learns the values of all variables or headers whose names say that they are secret, and the credentials in the
 * addresses of the others (`HTTPS_PROXY=http://user:password@host`).
 */
export function knowVariables(variables: Variables): void {
  for (const [name, value] of Object.entries(variables)) {
    if (value === undefined) continue
    if (secretName.test(name) && !isPath(value)) knowSecret(value)
    knowAddress(value)
  }
  knowHeaderList(variables.OTEL_EXPORTER_OTLP_HEADERS ?? '')
}

/** Returns the variables with these names, whose values an agent, a task or a tool gets; all of them are learned. */
export function passedOn(names: readonly string[], env: Variables = process.env): Variables {
  const passed = Object.fromEntries(names.map(name => [name, env[name]]))
  for (const value of Object.values(passed)) if (value !== undefined && !isPath(value)) knowSecret(value)
  knowVariables(passed)
  return passed
}

/** Learns the user and password of each address in a text, and the values of its parameters with a secret's name. */
export function knowAddress(text: string): void {
  if (!text.includes('://')) return
  for (const [, authority] of text.matchAll(/:\/\/([^\s/?#"<>\\]+)@/g)) {
    for (const form of [authority!, decoded(authority!)]) {
      knowSecret(form)
      knowSecret(form.slice(form.indexOf(':') + 1))
    }
  }
  for (const [, name, value] of text.matchAll(/[?&]([\w.-]+)=([^&#\s"<>\\]+)/g)) {
    if (!secretName.test(name!)) continue
    knowSecret(value!)
    knowSecret(decoded(value!))
  }
}

/** Learns all values of `name=value,name=value` with percent-encoded values, as OpenTelemetry writes headers. */
export function knowHeaderList(text: string): void {
  for (const pair of text.split(',')) {
    const value = pair.slice(pair.indexOf('=') + 1).trim()
    knowSecret(value)
    knowSecret(decoded(value))
  }
}

/** Learns the passwords of a netrc file, from which clients such as wandb read them; a missing file has none. */
export function knowNetrc(file: string): void {
  try {
    for (const [, password] of readFileSync(file, 'utf8').matchAll(/\bpassword\s+(\S+)/g)) knowSecret(password!)
  } catch {
    // no file, or one that this user may not read: then the client reads none either
  }
}

/** True for the path of a file, or for a list of paths with such a one, as in PATH. */
const isPath = (value: string): boolean =>
  value.split(delimiter).some(part => isAbsolute(part) && part.length > 1 && existsSync(part))

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
