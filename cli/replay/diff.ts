/**
 * `troupe replay diff A B`: prints the first token at which two trajectories differ, and which of the files that they
 * left differ. Exit code 1 when a token or a file differs.
 */
import type { Command } from 'commander'
import { snapshotsRoot } from '../../environments'
import { diffSnapshots, type FileDifference, snapshotAfter } from '../../replay/files/trajectoryFiles'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { modelDirectories, type TokenTexts, tokenTexts } from '../../replay/tokens/tokenTexts'
import {
  diffTrajectories,
  endingOf,
  type TokenDifference,
  type TokenSide,
  windowTokens,
} from '../../replay/trajectories/diffTrajectories'
import { factsIn, isCaptured, readTrajectory, type Trajectory } from '../../replay/trajectories/trajectory'
import { roomOf } from '../io/fitColumns'
import { wrapped } from '../io/table'
import { escapeForTerminal, painter } from '../io/terminal'
import { type ReadOptions, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface DiffOptions extends ReadOptions {
  readonly otherRun?: string
  readonly json?: boolean
}

export function registerDiff(replay: Command): void {
  const command = replay
    .command('diff <a> <b>')
    .description(
      'print the first token at which two trajectories differ, how each ended, and which files they left differ',
    )
    .option('--other-run <id>', 'run that trajectory B belongs to, on the same bus (default: the run of A)')
    .option('--json', 'print one JSON object; exit 0 when nothing differs, else 1')
  withRun(command).action(diff)
}

async function diff(askedA: string, askedB: string, options: DiffOptions): Promise<void> {
  const { at: _, otherRun, ...elsewhere } = options
  await withLog(options, async recorded => {
    const a = await readTrajectory(recorded, askedA)
    if (otherRun === undefined) return print(recorded, a, await readTrajectory(recorded, askedB), options)
    await withLog({ ...elsewhere, run: otherRun }, async other =>
      print(recorded, a, await readTrajectory(other, askedB), options),
    )
  })
}

async function print(recorded: RecordedRun, a: Trajectory, b: Trajectory, { json }: DiffOptions): Promise<void> {
  const difference = diffTrajectories(a, b)
  const files = filesOf(a, b)
  process.exitCode = difference === null && (files?.same ?? true) ? 0 : 1
  if (json) {
    const sides = { a: endingOf(a), b: endingOf(b) }
    process.stdout.write(
      `${jsonText({ same: difference === null, difference, ...sides, ...(files === undefined ? {} : { files }) })}\n`,
    )
    return
  }
  const texts = tokenTexts(await modelDirectories(recorded))
  // Lines from files are not wrapped to the terminal's width, as the other lines are.
  const room = roomOf(process.stdout)
  const shown = lines(a, b, difference, texts).flatMap(line => wrapped(line, room, 5))
  process.stdout.write(`${[...shown, ...(files === undefined ? [] : filesLines(files))].join('\n')}\n`)
}

const paint = painter(process.stdout)

/** Compares the files that the trajectories left; undefined if the task of either has no environment. */
function filesOf(a: Trajectory, b: Trajectory) {
  if (a.request.task.environment === undefined || b.request.task.environment === undefined) return undefined
  const [left, right] = [snapshotAfter(factsIn(a)) ?? null, snapshotAfter(factsIn(b)) ?? null]
  const equal = left === right
  const store = { root: snapshotsRoot() }
  const differences = equal || left === null || right === null ? undefined : diffSnapshots(store, left, right)
  // Snapshots with different names may hold the same files: the name also covers the shell's state, and each driver
  // computes it in its own way.
  const same = equal || differences?.length === 0
  return { same, a: left, b: right, ...(differences === undefined ? {} : { differences }) }
}

function filesLines({ same, a, b, differences }: NonNullable<ReturnType<typeof filesOf>>): string[] {
  if (same) return ['every file is the same']
  const name = (snapshot: string | null) => (snapshot === null ? "the task's own" : snapshot.slice(0, 12))
  const head = `files differ: A ${name(a)}, B ${name(b)}`
  if (differences === undefined)
    return [
      `${head}; ${a === null || b === null ? 'one trajectory changed no file' : 'this machine lacks one of the snapshots'}`,
    ]
  const marks = ({ a: left, b: right }: FileDifference) =>
    left === 'absent' ? 'B alone' : right === 'absent' ? 'A alone' : 'both'
  return [
    head,
    ...differences.flatMap(file => [
      `  ${escapeForTerminal(file.path)}  ${marks(file)}`,
      ...(file.lines ?? [])
        .flatMap(line => escapeForTerminal(line).split('\n'))
        .map(line => paint('dim', `    │ ${line}`)),
    ]),
  ]
}

/** Says how a trajectory ended; a count that the log does not have, as of a session that runs, is left out. */
export function endingLine(name: 'A' | 'B', trajectory: Trajectory): string {
  const { outcome, turns, toolCalls, toolErrors, reward, selection, ...one } = endingOf(trajectory)
  const told = [
    outcome,
    `${turns} ${isCaptured(trajectory) ? 'calls' : 'turns'}`,
    ...(toolCalls === null
      ? []
      : [
          toolErrors === null
            ? `${toolCalls} tool calls, failures unknown`
            : `${toolErrors} of ${toolCalls} tool calls failed`,
        ]),
    ...(reward === null ? [] : [`reward ${reward}`]),
    ...(selection === null ? [] : [selection]),
  ]
  return `${name}  ${escapeForTerminal(one.trajectory).padEnd(16)} ${told.join(', ')}`
}

function lines(a: Trajectory, b: Trajectory, difference: TokenDifference | null, texts: TokenTexts): string[] {
  const head = [endingLine('A', a), endingLine('B', b)]
  if (difference === null) return [...head, 'every token is the same']
  const text = (token: number) => texts(token) ?? `<${token}>`
  const side = (name: string, { where, token, logprob, policyVersion, window }: TokenSide) => {
    const before = window.slice(0, Math.min(windowTokens, difference.common))
    const after = window.slice(before.length + (token === null ? 0 : 1))
    const mark = token === null ? '(no more)' : `${token} ${JSON.stringify(escapeForTerminal(text(token)))}`
    const sampled = logprob === null ? '' : `, logprob ${logprob.toFixed(3)}, policy ${policyVersion}`
    const shown = (tokens: readonly number[]) => escapeForTerminal(tokens.map(text).join('')).replace(/\n/g, '\\n')
    return [
      `${name}  ${where}: ${paint('yellow', mark)}${sampled}`,
      `     ${paint('dim', shown(before))}${paint('yellow', token === null ? '' : shown([token]))}${shown(after)}`,
    ]
  }
  return [
    ...head,
    `the first ${difference.common} tokens are the same (A has ${difference.a.tokens}, B ${difference.b.tokens}); then`,
    ...side('A', difference.a),
    ...side('B', difference.b),
  ]
}
