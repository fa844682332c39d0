/**
 * Logs to stderr, since stdout carries data. The only file that imports pino, which loads when the first log is
 * created.
 *
 * in   fields and a text          out  a JSON line; on a terminal a readable line
 * Invariant: a text field whose name looks like a secret's is redacted, and so is a known secret in the message, a text
 * field or a field's name; numbers stay, so that each line is valid JSON. Fields are copied to a depth of 6; deeper
 * objects become `[…]`. Readable lines escape all control characters, so that text of a model or a tool cannot move the
 * cursor.
 *
 * TROUPE_LOG sets the level where the caller gives none: trace, debug, info (default), warn, error, fatal, silent.
 */
import { inspect } from 'node:util'
import type { DestinationStream, Logger } from 'pino'
import { redactSecrets } from './secrets/knownSecrets'

export interface Log {
  trace(fields: object, text: string): void
  debug(fields: object, text: string): void
  info(fields: object, text: string): void
  warn(fields: object, text: string): void
  error(fields: object, text: string): void
  /** Creates a log with these fields in every line. */
  child(fields: object): Log
}

export interface LogOptions {
  readonly level?: string
  /** true: readable lines; false: JSON. Default: true if stderr is a terminal and no `write` is given. */
  readonly pretty?: boolean
  readonly write?: (line: string) => void
}

const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']
const secret = /(authorization|cookie|password|passphrase|secret|token|api[-_]?key|credential)$/i
const maxDepth = 6

export function createLog(name: string, options: LogOptions = {}): Log {
  const pino = require('pino') as typeof import('pino')
  const asked = options.level ?? process.env.TROUPE_LOG ?? 'info'
  const write = options.write ?? (line => process.stderr.write(line))
  const pretty = options.pretty ?? (options.write === undefined && process.stderr.isTTY === true)
  const stream: DestinationStream = {
    write: line => write(pretty ? readable(withoutSecrets(line)) : withoutSecrets(line)),
  }
  const logger = pino(
    {
      name,
      level: levels.includes(asked) ? asked : 'info',
      base: { pid: process.pid },
      formatters: { level: label => ({ level: label }), log: fields => redact(fields, 0) as Record<string, unknown> },
      serializers: { err: (error: unknown) => error },
    },
    stream,
  )
  if (!levels.includes(asked)) {
    logger.warn({ asked }, `unknown log level (TROUPE_LOG): expected one of ${levels.join(', ')}; info is used`)
  }
  return adapt(logger)
}

function adapt(logger: Logger): Log {
  return {
    trace: (fields, text) => logger.trace(fields, text),
    debug: (fields, text) => logger.debug(fields, text),
    info: (fields, text) => logger.info(fields, text),
    warn: (fields, text) => logger.warn(fields, text),
    error: (fields, text) => logger.error(fields, text),
    child: fields => adapt(logger.child(redact(fields, 0) as Record<string, unknown>)),
  }
}

/**
 * Copies a value down to `maxDepth`, which also cuts cycles. Texts in fields whose names look like a secret's are
 * redacted; errors become plain fields.
 */
function redact(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (depth >= maxDepth) return '[…]'
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`
  if (Array.isArray(value)) return value.map(one => redact(one, depth + 1))
  if (value instanceof Error) return redact(errorFields(value), depth)
  const shown: Record<string, unknown> = {}
  for (const [key, one] of Object.entries(value)) {
    // Only strings are redacted: a reference to a secret ({env: NAME}) and numbers (maxTokens) are harmless.
    const hidden = secret.test(key) && typeof one === 'string'
    shown[key] = hidden ? '[redacted]' : redact(one, depth + 1)
  }
  return shown
}

function errorFields(error: Error): object {
  const { name, message, stack, cause } = error
  // Logs only the stack of the innermost error in a chain of causes.
  return { ...error, name, message, ...(cause === undefined ? { stack } : { cause }) }
}

/** Removes known secrets from the texts of a JSON line. Only a line that seems to hold one is parsed. */
function withoutSecrets(line: string): string {
  if (redactSecrets(line) === line) return line
  return `${JSON.stringify(redactTexts(JSON.parse(line)))}\n`
}

function redactTexts(value: unknown): unknown {
  if (typeof value === 'string') return redactSecrets(value)
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map(redactTexts)
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [redactSecrets(key), redactTexts(one)]))
}

/** Converts a JSON line to `12:30:05 WARN actor failed and restarts  actor=/run/grouper  err: message (code)`. */
function readable(line: string): string {
  const { level, time, name, msg, pid, err, ...fields } = JSON.parse(line) as Record<string, unknown>
  const clock = new Date(Number(time)).toISOString().slice(11, 19)
  const rest = Object.entries(fields).map(([key, value]) => `  ${key}=${short(value)}`)
  const fault = err as { message?: string; code?: string; hint?: string } | undefined
  const why = fault ? `  err: ${fault.message}${fault.code ? ` (${fault.code})` : ''}` : ''
  const hint = fault?.hint ? `  hint: ${fault.hint}` : ''
  return `${printable(`${clock} ${String(level).toUpperCase().padEnd(5)} ${msg}${rest.join('')}${why}${hint}`)}\n`
}

const short = (value: unknown): string =>
  typeof value === 'string' ? value : inspect(value, { depth: 3, breakLength: Number.POSITIVE_INFINITY })

const printable = (text: string): string =>
  text.replace(/\p{Cc}/gu, control => `\\x${control.charCodeAt(0).toString(16).padStart(2, '0')}`)
