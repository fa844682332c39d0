/**
 * `troupe exec`: runs Python in the sandbox, without a model or a run, one call per line (line.ts has the format).
 *
 * in   requests on stdin      out  one line on stdout for each, as they finish
 * Invariant: every line that was read and is not blank is answered, unless the reader of stdout goes away or a second
 * signal comes. Open work (lines, and answers that wait to be written) is bounded in calls and bytes; above the bound,
 * stdin is not read.
 */
import { once } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import { type Command, Option } from 'commander'
import {
  DEFAULT_MAX_OUTPUT_BYTES,
  DEFAULT_TIMEOUT_MS,
  MAX_CODE_BYTES,
  openSandbox,
  type Sandbox,
  type SandboxLevel,
} from '../../sandbox'
import { underSignals, whileWritable } from '../io/lineCommand'
import { readLines } from '../io/readLines'
import { type CodeChoice, chosenCode, withCode } from '../options/codeOptions'
import { sandboxLevel, wholeNumber } from '../options/readers'
import { type ExecLine, parseExecLine, rejectedLine, resultLine } from './line'

interface ExecOptions extends CodeChoice {
  readonly jsonl?: true
  readonly lanes?: number
  readonly requireLevel?: SandboxLevel
  readonly timeoutMs: number
  readonly maxOutput: number
}

/**
 * Upper bound on an input line, in bytes (128 MiB): the longest code with six bytes of JSON for each of its bytes (48
 * MiB), and the longest stdin (64 MiB) if little of it is escaped.
 */
const MAX_LINE_BYTES = 16 * MAX_CODE_BYTES
/**
 * Bound on the bytes of all open lines, and on those of all waiting answers. The next line is read only while the open
 * lines have fewer bytes, so they exceed it by less than one line.
 */
const MAX_OPEN_BYTES = 2 * MAX_LINE_BYTES

/** Adds the command to the program. Its action sets `process.exitCode` when the exit code is not 0. */
export function registerExec(program: Command): void {
  const command = program
    .command('exec')
    .description(
      'run Python in the sandbox: lines {id, code, stdin?, timeoutMs?, memoryMb?, …} on stdin, a line on stdout for each as it finishes',
    )
    .addOption(new Option('--jsonl', 'JSON lines, the only format').hideHelp())
    .option(
      '--lanes <n>',
      'number of sandbox lanes: calls that run at once (default: 60 per core, 2 per core at level none)',
      wholeNumber(1, 4096),
    )
    .option(
      '--require-level <level>',
      'lowest accepted isolation level; the command fails below it: full, degraded, none',
      sandboxLevel,
    )
    .option(
      '--timeout-ms <ms>',
      'deadline of a call whose line sets no timeoutMs',
      wholeNumber(1, 3_600_000),
      DEFAULT_TIMEOUT_MS,
    )
    .option(
      '--max-output <bytes>',
      'upper bound on the bytes of stdout, and of stderr, that are kept of a call',
      wholeNumber(0, 1 << 26),
      DEFAULT_MAX_OUTPUT_BYTES,
    )
  withCode(command).action(async (options: ExecOptions) => {
    const { lanes, requireLevel } = options
    const sandbox = await openSandbox({
      ...chosenCode(options),
      ...(lanes === undefined ? {} : { lanes }),
      ...(requireLevel === undefined ? {} : { requireLevel }),
    })
    try {
      process.stderr.write(`sandbox: level ${sandbox.level}, ${sandbox.lanes} lanes\n`)
      const code = await underSignals(process.stdin, abort =>
        execLines(sandbox, process.stdin, process.stdout, options, abort),
      )
      if (code !== 0) process.exitCode = code
    } finally {
      await sandbox.close()
    }
  })
}

/**
 * Answers lines until the input ends or is destroyed.
 * @param abort ends the running calls unanswered; it also fires when the reader closes the output
 */
async function execLines(
  sandbox: Sandbox,
  input: Readable,
  output: Writable,
  { timeoutMs, maxOutput }: Pick<ExecOptions, 'timeoutMs' | 'maxOutput'>,
  abort: AbortController = new AbortController(),
): Promise<void> {
  const { signal } = abort
  const open = new Set<Promise<void>>()
  const most = Math.max(1, Math.min(2 * sandbox.lanes, Math.floor(MAX_OPEN_BYTES / (2 * maxOutput + 1))))
  let openBytes = 0
  const write = async (line: string) => {
    if (signal.aborted || output.write(line)) return
    await once(output, 'drain', { signal }).catch(() => undefined) // after an abort nobody reads the answer
  }
  const answer = async (line: ExecLine) => {
    try {
      const limits = { timeoutMs, maxOutputBytes: maxOutput }
      await write(resultLine(line, await sandbox.run({ ...limits, ...line.request }, signal)))
    } catch (error) {
      if (signal.aborted) return
      await write(rejectedLine({ id: line.id, reason: (error as Error).message }))
    }
  }
  await whileWritable(input, output, abort, async () => {
    for await (const line of readLines(input, MAX_LINE_BYTES)) {
      const parsed = 'text' in line ? parseExecLine(line.text) : { id: null, reason: line.reason }
      if ('reason' in parsed) await write(rejectedLine(parsed))
      else {
        const bytes = 'text' in line ? line.bytes : 0
        openBytes += bytes
        const call: Promise<void> = answer(parsed).finally(() => {
          open.delete(call)
          openBytes -= bytes
        })
        open.add(call)
        while (open.size >= most || openBytes >= MAX_OPEN_BYTES) await Promise.race(open)
      }
      if (signal.aborted) break
    }
    await Promise.all(open)
  })
}
