/**
 * A submission as Code Judge's API has it (0xWJ/code-judge, app/model.py), checked.
 *
 * in   parsed JSON      out  the submission, or what is wrong with it in pydantic's form (as FastAPI's 422 has it)
 * Invariant: a batch is refused as a whole only where it is no batch; a bad item is one bad item.
 */
import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { notUnicode } from '../escapedText'
import { MAX_CODE_BYTES } from '../limits'

/** One of FastAPI's `detail` entries. */
export interface Fault {
  readonly type: string
  readonly loc: readonly (string | number)[]
  readonly msg: string
  readonly input: unknown
  readonly ctx?: Readonly<Record<string, unknown>>
}

export interface Submission {
  readonly subId: string
  readonly type: 'python' | 'cpp' | 'math'
  readonly solution: string
  readonly input: string
  readonly expectedOutput: string | undefined
}

/** An item of a batch that cannot run; it is answered alone. */
export interface BadSubmission {
  readonly subId: string
  readonly faults: readonly Fault[]
}

export interface Batch {
  readonly subId: string
  readonly items: readonly (Submission | BadSubmission)[]
}

/** How much of a bad value an answer repeats. */
const ECHO_CHARS = 200

// A JSON string may hold half of a surrogate pair, and a body bytes that are no UTF-8 (see escapedText.ts).
const text = z.string().refine(value => notUnicode(value) === undefined, { params: { fault: 'string_unicode' } })
const solution = text.refine(
  value => 3 * value.length <= MAX_CODE_BYTES || Buffer.byteLength(value) <= MAX_CODE_BYTES,
  {
    params: { fault: 'string_too_long' },
  },
)
const submission = z.object({
  sub_id: text.nullish(),
  type: z.enum(['python', 'cpp', 'math']),
  options: z.record(z.string(), z.string()).nullish(),
  solution,
  input: text.nullish(),
  expected_output: text.nullish(),
})
const batch = z.object({
  sub_id: text.nullish(),
  type: z.literal('batch').optional(),
  submissions: z.array(z.unknown()).min(1),
})

export function submissionOf(value: unknown, loc: Fault['loc'] = ['body']): Submission | BadSubmission {
  const parsed = submission.safeParse(value)
  if (!parsed.success) return { subId: idOf(value), faults: faultsOf(parsed.error, value, loc) }
  const { sub_id, type, solution, input, expected_output } = parsed.data
  const expectedOutput = expected_output ?? undefined
  return { subId: sub_id || randomUUID(), type, solution, input: input ?? '', expectedOutput }
}

/** The batch, or why the body is none. */
export function batchOf(value: unknown): Batch | readonly Fault[] {
  const parsed = batch.safeParse(value)
  if (!parsed.success) return faultsOf(parsed.error, value, ['body'])
  const { sub_id, submissions } = parsed.data
  return {
    subId: sub_id || randomUUID(),
    items: submissions.map((item, index) => submissionOf(item, ['body', 'submissions', index])),
  }
}

/** A fault as a line for a person: `submissions.1.solution: Field required`. */
export function faultLine({ loc, msg }: Fault): string {
  return `${loc.slice(1).join('.') || 'body'}: ${msg}`
}

function idOf(value: unknown): string {
  const id = typeof value === 'object' && value !== null ? (value as { sub_id?: unknown }).sub_id : undefined
  return typeof id === 'string' && id !== '' && notUnicode(id) === undefined ? id : randomUUID()
}

function faultsOf(error: z.ZodError, value: unknown, loc: Fault['loc']): Fault[] {
  return error.issues.map(issue => {
    const path = issue.path.map(part => (typeof part === 'number' ? part : String(part)))
    const at = path.reduce<unknown>((inner, key) => (inner as Record<string, unknown> | undefined)?.[key], value)
    const parent = path.slice(0, -1).reduce<unknown>((inner, key) => (inner as Record<string, unknown>)[key], value)
    const where = [...loc, ...path]
    if (at === undefined && path.length > 0) {
      return { type: 'missing', loc: where, msg: 'Field required', input: echo(parent) }
    }
    return { ...named(issue, at), loc: where, input: echo(at) }
  })
}

function named(issue: z.core.$ZodIssue, at: unknown): Pick<Fault, 'type' | 'msg' | 'ctx'> {
  switch (issue.code) {
    case 'invalid_type':
      if (issue.expected === 'string') return { type: 'string_type', msg: 'Input should be a valid string' }
      if (issue.expected === 'array') return { type: 'list_type', msg: 'Input should be a valid list' }
      if (issue.expected === 'record') return { type: 'dict_type', msg: 'Input should be a valid dictionary' }
      return {
        type: 'model_attributes_type',
        msg: 'Input should be a valid dictionary or object to extract fields from',
      }
    case 'invalid_value': {
      const values = issue.values.map(value => `'${String(value)}'`)
      const expected = [values.slice(0, -1).join(', '), values.at(-1)].filter(Boolean).join(' or ')
      return { type: 'literal_error', msg: `Input should be ${expected}`, ctx: { expected } }
    }
    case 'too_small': {
      const ctx = { field_type: 'List', min_length: 1, actual_length: 0 }
      return { type: 'too_short', msg: 'List should have at least 1 item after validation, not 0', ctx }
    }
    case 'custom':
      if (issue.params?.fault === 'string_too_long') {
        const bytes = Buffer.byteLength(String(at))
        const msg = `Code should have at most ${MAX_CODE_BYTES} bytes, not ${bytes}`
        return { type: 'string_too_long', msg, ctx: { max_length: MAX_CODE_BYTES } }
      }
      return {
        type: 'string_unicode',
        msg: `Input should be Unicode text; ${notUnicode(String(at))}`,
      }
    default:
      return { type: 'value_error', msg: issue.message }
  }
}

/** A bad value as it came, unless that is long, deep or no text: an answer must be small, and valid itself. */
function echo(value: unknown): unknown {
  const shortened = (_: string, inner: unknown) => {
    if (typeof inner !== 'string') return inner
    return Buffer.from(inner.length > ECHO_CHARS ? `${inner.slice(0, ECHO_CHARS)}…` : inner).toString()
  }
  try {
    const json = JSON.stringify(value, shortened) ?? 'null'
    return json.length > 4 * ECHO_CHARS ? `${json.slice(0, ECHO_CHARS)}…` : JSON.parse(json)
  } catch {
    return '…' // nested too deeply to be printed
  }
}
