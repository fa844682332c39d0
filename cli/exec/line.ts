/**
 * Parses and prints the lines of `exec --jsonl`.
 *
 * in   a line of text, or a result of the sandbox    out  a request, or the reason why it is rejected; a line to print
 * Invariant: parsing never throws: any text gives a request or a reason, with the line's id if that is valid, else
 * null.
 */
import { didYouMean } from '../../runtime/settings/nearestName'
import { withoutBom } from '../../runtime/settings/withoutBom'
import { notUnicode, type RunRequest, type RunResult } from '../../sandbox'

type LineId = string | number | null

export interface ExecLine {
  readonly id: LineId
  readonly request: RunRequest
  readonly encoding: 'utf8' | 'base64'
}

export interface BadLine {
  readonly id: LineId
  readonly reason: string
}

const isNumber = (value: unknown) => typeof value === 'number'
const isText = (value: unknown) => typeof value === 'string'
const FIELDS: Readonly<Record<string, { readonly is: (value: unknown) => boolean; readonly what: string }>> = {
  id: { is: value => isText(value) || isNumber(value), what: 'a string or a number' },
  code: { is: isText, what: 'a string' },
  stdin: { is: isText, what: 'a string' },
  timeoutMs: { is: isNumber, what: 'a number' },
  memoryMb: { is: isNumber, what: 'a number' },
  maxProcesses: { is: isNumber, what: 'a number' },
  session: { is: isSession, what: '{"id": string, "cell": number}' },
  encoding: { is: value => value === 'utf8' || value === 'base64', what: '"utf8" or "base64"' },
}
const REQUIRED = ['id', 'code']
const fieldNames = Object.keys(FIELDS)

export function parseExecLine(text: string): ExecLine | BadLine {
  let value: unknown
  try {
    value = JSON.parse(withoutBom(text))
  } catch (error) {
    return { id: null, reason: `not JSON: ${(error as Error).message}` }
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { id: null, reason: 'a line must be a JSON object' }
  }
  const fields = value as Readonly<Record<string, unknown>>
  const id = Object.hasOwn(fields, 'id') && FIELDS.id!.is(fields.id) ? (fields.id as LineId) : null
  for (const [name, given] of Object.entries(fields)) {
    const field = Object.hasOwn(FIELDS, name) ? FIELDS[name] : undefined
    if (!field)
      return {
        id,
        reason: `unknown field ${JSON.stringify(name)}${didYouMean(name, fieldNames) || `; known fields: ${fieldNames.join(', ')}`}`,
      }
    // An optional field that is null counts as missing, because many JSON writers write null for it.
    const missing = given === null && !REQUIRED.includes(name)
    if (!missing && !field.is(given)) return { id, reason: `${name} must be ${field.what}` }
    // Text that is not valid Unicode is refused, because Python would receive a replacement character in its place.
    const wrong = isText(given) ? notUnicode(given as string) : undefined
    if (wrong) return { id: name === 'id' ? null : id, reason: `${name} must be Unicode text; ${wrong}` }
  }
  for (const name of REQUIRED) if (!Object.hasOwn(fields, name)) return { id, reason: `${name} is missing` }
  const { encoding, id: _, ...rest } = Object.fromEntries(Object.entries(fields).filter(([, given]) => given !== null))
  const request = { ...rest, id: String(id) } as unknown as RunRequest
  return { id, request, encoding: encoding === 'base64' ? 'base64' : 'utf8' }
}

/** Prints the answer to a line that was rejected and never ran. */
export function rejectedLine({ id, reason }: BadLine): string {
  const nothing = { stdout: '', stderr: '', stdoutBytes: 0, stderrBytes: 0, wallMs: 0, cpuMs: 0, maxRssBytes: 0 }
  return `${JSON.stringify({ id, status: 'rejected', exitCode: null, signal: null, ...nothing, reason })}\n`
}

export function resultLine({ id, encoding }: ExecLine, result: RunResult): string {
  const { status, exitCode, signal, stdoutBytes, stderrBytes, wallMs, cpuMs, maxRssBytes, reason } = result
  const stdout = encoded(result.stdout, encoding)
  const stderr = encoded(result.stderr, encoding)
  const ending = { id, status, exitCode, signal, stdout, stderr, stdoutBytes, stderrBytes, wallMs, cpuMs, maxRssBytes }
  return `${JSON.stringify(reason === undefined ? ending : { ...ending, reason })}\n`
}

function encoded(bytes: Uint8Array, encoding: 'utf8' | 'base64'): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString(encoding)
}

function isSession(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const { id, cell, ...rest } = value as Record<string, unknown>
  return isText(id) && Number.isInteger(cell) && Number(cell) >= 0 && Object.keys(rest).length === 0
}
