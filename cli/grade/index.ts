/**
 * `troupe grade`: runs the math grader by itself, one answer on each line. line.ts has the format of the lines.
 *
 * in   {id?, answer, truth} on stdin
 * out  {id?, correct, how, why} on stdout, in the order of the lines; with --second, for each answer that was graded,
 * also {second, differ}: the verdict of plain arithmetic (null if undecidable), and whether it contradicts the grader
 * Invariant: every line that was read and is not blank gets an answer, unless the reader of stdout goes away or a
 * second signal comes. Backpressure: stdin is read only while fewer than `maxOpen` answers are open and their lines
 * have at most `maxOpenBytes`. Answers that need no math-verify start no Python.
 */
import { once } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import { type Command, Option } from 'commander'
import { type AnswerGrader, answerGrader } from '../../actors/verification/answerGrader'
import { graderLanes, graderSandbox } from '../../actors/verification/graderSandbox'
import { checkByArithmetic } from '../../kernels'
import { asError } from '../../runtime/errors'
import { underSignals, whileWritable } from '../io/lineCommand'
import { readLines } from '../io/readLines'
import { wholeNumber } from '../options/readers'
import { differs, type GradePlace, parseGradeLine, ungradedLine, verdictLine } from './line'

interface GradeOptions {
  readonly jsonl?: true
  readonly lanes: number
  readonly timeoutMs: number
  readonly place: GradePlace
  readonly second?: true
  readonly literal?: true
}

const maxLineBytes = 4 * 1024 * 1024
const maxOpen = 1024
const maxOpenBytes = 64 * 1024 * 1024

/** Adds the command to the program. Its action sets `process.exitCode` when the code is not 0. */
export function registerGrade(program: Command): void {
  program
    .command('grade')
    .description(
      'compare answers with the expected ones: lines {id?, answer, truth} on stdin, lines on stdout in the same order',
    )
    .addOption(new Option('--jsonl', 'JSON lines, the only format').hideHelp())
    .addOption(
      new Option('--place <place>', 'where in the field `answer` to look for the answer')
        .choices(['as-given', 'answer-tag', 'anywhere', 'hashes', 'last-number'])
        .default(
          'as-given',
          'as-given: the last box in the last answer tag; without a tag in the whole text, without a box all of it',
        ),
    )
    .option(
      '--second',
      'grade each answer by plain arithmetic as well; where the two verdicts differ, the truth itself may be wrong',
    )
    .option(
      '--literal',
      'if the truth is an integer, accept only a number in digits, not an expression of the same value',
    )
    .option('--lanes <n>', 'number of answers that math-verify decides at once', wholeNumber(1, 4096), graderLanes)
    .option('--timeout-ms <ms>', 'deadline of math-verify for one answer', wholeNumber(1, 3_600_000), 4000)
    .action(async (options: GradeOptions) => {
      const code = await gradeUnderSignals(options)
      if (code !== 0) process.exitCode = code
    })
}

async function gradeUnderSignals(options: GradeOptions): Promise<number> {
  const sandbox = graderSandbox(options.lanes)
  try {
    const grade = answerGrader(sandbox, { timeoutMs: options.timeoutMs, literal: options.literal === true })
    return await underSignals(process.stdin, async abort => {
      const second = options.second === true
      const counted = await gradeLines(grade, process.stdin, process.stdout, options.place, abort, { second })
      process.stderr.write(`graded ${counted.right + counted.wrong}: ${counted.right} right, ${counted.wrong} wrong`)
      process.stderr.write(counted.ungraded === 0 ? '\n' : `; ${counted.ungraded} lines were not graded\n`)
      if (second) process.stderr.write(`arithmetic decided ${counted.decided}, and differs in ${counted.differ}\n`)
    })
  } finally {
    await sandbox.close()
  }
}

export interface Graded {
  readonly right: number
  readonly wrong: number
  /** Number of lines without a verdict: they cannot be parsed, are too long, or the grader failed or was aborted. */
  readonly ungraded: number
  /** Number of lines that plain arithmetic could decide. */
  readonly decided: number
  /** Number of lines in which plain arithmetic contradicts the grader. */
  readonly differ: number
}

/**
 * Grades lines until the input ends or is destroyed.
 * @param abort aborts the answers that are not decided yet; this function fires it when the output cannot be written,
 * for example because its reader has gone
 */
export async function gradeLines(
  grade: AnswerGrader,
  input: Readable,
  output: Writable,
  place: GradePlace,
  abort: AbortController = new AbortController(),
  { second = false } = {},
): Promise<Graded> {
  const { signal } = abort
  const counts = { right: 0, wrong: 0, ungraded: 0, decided: 0, differ: 0 }
  /** Answers that are not written yet, in the order of the lines. */
  const open: { readonly bytes: number; readonly answer: Promise<string> }[] = []
  let openBytes = 0
  async function answerTo(text: string): Promise<string> {
    const line = parseGradeLine(text, place)
    if ('reason' in line) {
      counts.ungraded++
      return ungradedLine(line.id, 'rejected', line.reason)
    }
    const { id, answer, truth } = line
    if (answer === null) {
      counts.wrong++
      return verdictLine(id, { correct: false, how: 'no-answer', why: `there is no ${missing[place]}` })
    }
    try {
      const verdict = await grade({ answer, truth }, signal)
      counts[verdict.correct ? 'right' : 'wrong']++
      if (!second) return verdictLine(id, verdict)
      const byArithmetic = checkByArithmetic(answer, truth) ?? null
      if (byArithmetic !== null) counts.decided++
      if (differs(verdict, byArithmetic)) counts.differ++
      return verdictLine(id, verdict, byArithmetic)
    } catch (thrown) {
      counts.ungraded++
      return ungradedLine(id, 'failed', asError(thrown).message)
    }
  }
  let writing: Promise<void> | undefined
  let onWritten: () => void = () => {}
  /** Writes answers one at a time, in the order of the lines, each as soon as it is decided. */
  async function writeAll(): Promise<void> {
    for (let first = open[0]; first !== undefined; first = open[0]) {
      const line = await first.answer
      // After an abort nobody reads the output any more.
      if (!signal.aborted && !output.write(line)) await once(output, 'drain', { signal }).catch(() => undefined)
      open.shift()
      openBytes -= first.bytes
      onWritten()
    }
    writing = undefined
  }
  const isFull = () => open.length >= maxOpen || openBytes > maxOpenBytes
  await whileWritable(input, output, abort, async () => {
    for await (const line of readLines(input, maxLineBytes)) {
      const bytes = 'text' in line ? line.bytes : 0
      const answer =
        'text' in line ? answerTo(line.text) : Promise.resolve(ungradedLine(undefined, 'rejected', line.reason))
      if (!('text' in line)) counts.ungraded++
      open.push({ bytes, answer })
      openBytes += bytes
      writing ??= writeAll()
      while (isFull()) {
        await new Promise<void>(resolve => {
          onWritten = resolve
        })
      }
      if (signal.aborted) break
    }
    await writing
  })
  return counts
}

const missing: Readonly<Record<GradePlace, string>> = {
  'as-given': 'answer',
  'answer-tag': '\\boxed{} in the last answer tag',
  anywhere: '\\boxed{} in the answer',
  hashes: 'number after ####',
  'last-number': 'number in the answer',
}
