/**
 * Finds the credentials in environment variables, headers and addresses, and makes them known to the redactor.
 *
 * in   variables of this process or of a child process, names of variables to pass on, headers, addresses
 * out  knownSecrets.ts knows their values
 * Invariant: a value is learned before a program or a server gets it, so before anything can repeat it. Ordinary values
 * are not learned (recogniseSecret.ts), nor are names of users and addresses in prose, such as a recipe's prompts.
 */
import { readFileSync } from 'node:fs'
import { knowSecret, type Lifetime } from './knownSecrets'
import { isSecret, looksRandom, secretsIn } from './recogniseSecret'

type Variables = Readonly<Record<string, string | undefined>>

/**
 * Learns, for redaction, the values of all variables or headers that hold a secret, also each part of a list
 * (`API_KEYS=one,two`), and the credentials in addresses (`HTTPS_PROXY=http://user:password@host`).
 */
export function knowVariables(variables: Variables): void {
  for (const [name, value] of Object.entries(variables)) {
    if (value === undefined) continue
    if (isSecret(name, value)) for (const one of [value, ...secretsIn(name, value)]) knowSecret(one)
    knowAddress(value)
  }
  knowHeaderList(variables.OTEL_EXPORTER_OTLP_HEADERS ?? '')
}

/**
 * Returns the variables with these names, which an agent, a task or a tool gets. Besides what `knowVariables` learns,
 * values that look random are learned for redaction, whatever their names are.
 */
export function passedOn(names: readonly string[], env: Variables = process.env): Variables {
  const passed = Object.fromEntries(names.map(name => [name, env[name]]))
  for (const value of Object.values(passed)) if (value !== undefined && looksRandom(value)) knowSecret(value)
  knowVariables(passed)
  return passed
}

/**
 * Learns, for redaction, the credentials in each value of plain data that is an address, alone or after `name=`; not
 * those in prose.
 */
export function knowAddressesIn(data: unknown): void {
  if (typeof data === 'string') {
    if (/^(?:[\w.-]+=)?[a-z][a-z0-9+.-]*:\/\/\S+$/i.test(data)) knowAddress(data)
  } else if (typeof data === 'object' && data !== null) for (const inner of Object.values(data)) knowAddressesIn(inner)
}

/**
 * Learns, for redaction, the credentials in each address in a text: passwords, tokens in place of a user, and
 * parameters with the name of a secret. A user's name is none, nor is a password that is the name of the user, the host
 * or the protocol, such as `postgres`: it is only learned together with the user, as `user:password@`.
 */
export function knowAddress(text: string, lifetime?: Lifetime): void {
  if (!text.includes('://')) return
  for (const [, scheme, authority, host] of text.matchAll(
    /([a-z0-9+.-]{0,40}):\/\/([^\s/?#"<>\\]+)@([^\s/?#"<>\\:,]*)/gi,
  )) {
    const [, user, password = ''] = /^([^:]*):?(.*)$/.exec(authority!)!
    if (looksRandom(user!)) knowSecret(user!, lifetime)
    if (password === '') continue
    knowSecret(`${authority}@`, lifetime)
    for (const one of [password, decoded(password)]) {
      if (![scheme, user, decoded(user!), host].includes(one)) knowSecret(one, lifetime)
    }
  }
  for (const [, name, value] of text.matchAll(/[?&]([\w.-]+)=([^&#\s"<>\\]+)/g)) {
    for (const one of [value!, decoded(value!)]) if (isSecret(name!, one)) knowSecret(one, lifetime)
  }
}

/**
 * Learns, for redaction, all values of `name=value,name=value` with percent-encoded values, as OpenTelemetry writes
 * headers.
 */
export function knowHeaderList(text: string): void {
  for (const pair of text.split(',')) {
    const value = pair.slice(pair.indexOf('=') + 1).trim()
    knowSecret(value)
    knowSecret(decoded(value))
  }
}

/**
 * Learns, for redaction, the passwords of a netrc file, from which clients such as wandb read them; a missing file has
 * none.
 */
export function knowNetrc(file: string): void {
  try {
    for (const [, password] of readFileSync(file, 'utf8').matchAll(/\bpassword\s+(\S+)/g)) knowSecret(password!)
  } catch {
    // no file, or one that this user may not read: then the client reads none either
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
