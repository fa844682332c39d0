/**
 * Checks submissions in the form of Code Judge's API (0xWJ/code-judge, app/model.py).
 *
 * in   parsed JSON      out  the submission, or its faults in pydantic's form (as in FastAPI's 422)
 * Invariant: a batch is refused as a whole only if it does not have the form of a batch; a bad item is answered alone.
 * The faults that are reported for one submission are bounded in number and size, and checking a long batch yields to
 * other requests.
 */
import { randomUUID } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { z } from 'zod'
import { notUnicode } from '../escapedText'
import { CALL_BOUNDS, MAX_CODE_BYTES } from '../limits'

/** One entry of FastAPI's `detail`: a fault of the body. */
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

/** Submission that cannot run because it has faults. */
export interface BadSubmission {
  readonly subId: string
  readonly faults: readonly Fault[]
}

export interface Batch {
  readonly subId: string
  readonly items: readonly (Submission | BadSubmission)[]
}

/**
 * Upper bound on the characters of each string in a bad value that an answer repeats; the whole value has at most four
 * times as many.
 */
const ECHO_CHARS = 200
/** Upper bound on the faults reported for one submission. */
const MAX_FAULTS = 16
/** Upper bound on the faults reported for a submission's `options`, so that faults of other fields have room. */
const MAX_OPTION_FAULTS = 10
/** Number of faults in a batch after which each further bad item gets one fault only, which leaves its value out. */
const MAX_BATCH_FAULTS = 4096
/** Number of items checked in one turn of the event loop. */
const ITEMS_A_TURN = 256

// A JSON string may hold half of a surrogate pair, and a body may hold bytes that are not UTF-8 (see escapedText.ts).
const text = z.string().refine(value => notUnicode(value) === undefined, { params: { fault: 'string_unicode' } })
const atMost = (what: string, most: number) =>
  text.refine(value => 3 * value.length <= most || Buffer.byteLength(value) <= most, {
    params: { fault: 'string_too_long', what, most },
  })
// A check by hand, since z.record would collect a fault for each key.
const options = z.unknown().superRefine((value, context) => {
  if (value === undefined || value === null) return
  if (typeof value !== 'object' || Array.isArray(value)) {
    context.addIssue({ code: 'invalid_type', expected: 'record', input: value })
    return
  }
  let faults = 0
  for (const key in value) {
    const input = (value as Record<string, unknown>)[key]
    if (typeof input === 'string') continue
    context.addIssue({ code: 'invalid_type', expected: 'string', path: [key], input })
    if (++faults === MAX_OPTION_FAULTS) return
  }
})
const submission = z.object({
  sub_id: text.nullish(),
  type: z.enum(['python', 'cpp', 'math']),
  options: options.optional(),
  solution: atMost('Code', MAX_CODE_BYTES),
  input: text.nullish(),
  // The expected output may be at most as long as the captured output that it is compared with.
  expected_output: atMost('Expected output', CALL_BOUNDS.maxOutputBytes[1]).nullish(),
})
const batch = z.object({
  sub_id: text.nullish(),
  type: z.literal('batch').optional(),
  submissions: z.array(z.unknown()).min(1),
})

export function submissionOf(
  value: unknown,
  loc: Fault['loc'] = ['body'],
  mostFaults = MAX_FAULTS,
): Submission | BadSubmission {
  const parsed = submission.safeParse(value)
  if (!parsed.success) return { subId: idOf(value), faults: faultsOf(parsed.error, value, loc, mostFaults) }
  const { sub_id, type, solution, input, expected_output } = parsed.data
  const expectedOutput = expected_output ?? undefined
  return { subId: sub_id || randomUUID(), type, solution, input: input ?? '', expectedOutput }
}

/** Returns the number of submissions in a body, without checking any. */
export function submissionCount(value: unknown): number {
  const submissions = (value as { readonly submissions?: unknown } | null)?.submissions
  return Array.isArray(submissions) ? submissions.length : 0
}

/** Checks a batch. Returns its items, or the faults if the body does not have the form of a batch. */
export async function batchOf(value: unknown): Promise<Batch | readonly Fault[]> {
  const parsed = batch.safeParse(value)
  if (!parsed.success) return faultsOf(parsed.error, value, ['body'], MAX_FAULTS)
  const { sub_id, submissions } = parsed.data
  const items: (Submission | BadSubmission)[] = []
  let left = MAX_BATCH_FAULTS
  for (const [index, given] of submissions.entries()) {
    const item = submissionOf(given, ['body', 'submissions', index], Math.min(left, MAX_FAULTS))
    if ('faults' in item) left = Math.max(0, left - item.faults.length)
    items.push(item)
    if (items.length % ITEMS_A_TURN === 0) await nextTurn()
  }
  return { subId: sub_id || randomUUID(), items }
}

/** Formats a fault as a readable line: `submissions.1.solution: Field required`. */
export function faultLine({ loc, msg }: Fault): string {
  return `${loc.slice(1).join('.') || 'body'}: ${msg}`
}

function idOf(value: unknown): string {
  const id = typeof value === 'object' && value !== null ? (value as { sub_id?: unknown }).sub_id : undefined
  return typeof id === 'string' && id !== '' && notUnicode(id) === undefined ? id : randomUUID()
}

/** Converts zod's issues to faults. @param most upper bound on their number; 0: one fault, without its value */
function faultsOf(error: z.ZodError, value: unknown, loc: Fault['loc'], most: number): Fault[] {
  return error.issues.slice(0, Math.max(1, most)).map(issue => {
    const path = issue.path.map(part => (typeof part === 'number' ? part : String(part)))
    const at = path.reduce<unknown>((inner, key) => (inner as Record<string, unknown> | undefined)?.[key], value)
    const parent = path.slice(0, -1).reduce<unknown>((inner, key) => (inner as Record<string, unknown>)[key], value)
    const where = [...loc, ...path.map(part => (typeof part === 'number' ? part : shortened(part)))]
    const repeated = (bad: unknown) => (most === 0 ? '…' : echo(bad))
    if (at === undefined && path.length > 0) {
      return { type: 'missing', loc: where, msg: 'Field required', input: repeated(parent) }
    }
    return { ...named(issue, at), loc: where, input: repeated(at) }
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
        const { what, most } = issue.params
        const msg = `${what} should have at most ${most} bytes, not ${Buffer.byteLength(String(at))}`
        return { type: 'string_too_long', msg, ctx: { max_length: most } }
      }
      return {
        type: 'string_unicode',
        msg: `Input should be Unicode text; ${notUnicode(String(at))}`,
      }
    default:
      return { type: 'value_error', msg: issue.message }
  }
}

/** Returns a bad value to repeat in an answer: shortened, valid Unicode; '…' if it is still long or deep. */
function echo(value: unknown): unknown {
  let chars = 0
  const counted = (key: string, inner: unknown) => {
    const shown = typeof inner === 'string' ? shortened(inner) : inner
    chars += key.length + (typeof shown === 'string' ? shown.length : 4)
    // Throwing stops the walk at the bound, without visiting the whole value.
    if (chars > 4 * ECHO_CHARS) throw new Error('long')
    return shown
  }
  try {
    return JSON.parse(JSON.stringify(value, counted) ?? 'null')
  } catch {
    return '…' // The value is too long, or nested too deeply to be printed.
  }
}

const shortened = (text: string) =>
  Buffer.from(text.length > ECHO_CHARS ? `${text.slice(0, ECHO_CHARS)}…` : text).toString()
