/**
 * `troupe replay verify`: checks the log and the files of a run and prints the result; exits with 1 when it finds a
 * problem.
 */
import type { Command } from 'commander'
import type { Verification } from '../../../replay/verify/verification'
import { verifyRun } from '../../../replay/verify/verifyRun'
import { counted } from '../../io/counted'
import { escapeForTerminal, painter, percent } from '../../io/terminal'
import { shareOf } from '../../options/readers'
import { openRecorded, type ReadOptions, withRun } from '../runOptions'
import { jsonText } from '../text/jsonText'

interface VerifyOptions extends ReadOptions {
  readonly json?: boolean
  readonly sample: number
  readonly files: boolean
}

const shownProblems = 20
const shownRunning = 12

export function registerVerify(replay: Command): void {
  const command = replay
    .command('verify')
    .description(
      'check the log and the files: every fact can be read and counts once; checkpoints, weights and blobs have their digests',
    )
    .option(
      '--sample <share>',
      'rebuild the turn contexts of this share of the trajectories, such as 10% or 0.1',
      shareOf('from 0'),
      1,
    )
    .option('--no-files', 'leave out checkpoints, published weights and blobs')
    .option('--json', 'print one JSON object')
  withRun(command).action(async (options: VerifyOptions) => {
    const recorded = await openRecorded({ ...options, checkAll: true })
    try {
      const verified = await verifyRun(recorded, options)
      if (options.json) process.stdout.write(`${jsonText(verified)}\n`)
      else for (const line of report(verified)) process.stdout.write(`${line}\n`)
      process.exitCode = verified.ok ? 0 : 1
    } finally {
      await recorded.close()
    }
  })
}

function filesLine({ files }: Verification): string {
  if (files === null) return 'files: not checked'
  const { checkpoints, weights, blobs, removed, withoutDigest } = files
  const unknown = withoutDigest === 0 ? '' : `, ${withoutDigest} of them without a digest in the log`
  return `files: ${checkpoints} checkpoints, ${weights} published weights, ${blobs} blobs checked${unknown}; ${removed} not on disk`
}

const paint = painter(process.stdout)

function report(v: Verification): string[] {
  const { counted: c } = v
  const lines = [
    `run ${v.run}: ${v.facts} facts, ${v.telemetry} statuses, ${v.commands} commands, ${v.deadLetters.length} dead letters, read in ${v.seconds.toFixed(2)} s (${Math.round((v.facts + v.telemetry + v.commands) / Math.max(v.seconds, 1e-3))} a second)`,
    `counted once: ${c.trajectories} trajectories, ${c.turns} turns, ${c.tools} tool calls, ${c.rewards} rewards, ${c.groups} groups decided, ${c.steps} steps`,
    `contexts rebuilt: ${v.contexts} (${percent(v.sampledShare, 0)} of the trajectories)${v.capturedCalls === 0 ? '' : `; not checked: the contexts of ${counted(v.capturedCalls, 'captured call')}`}`,
  ]
  if (v.turnsOfCalls > 0)
    lines.push(
      `turns of captured calls: ${counted(v.turnsOfCalls, 'fact')}; their tokens count once, in the calls' own facts`,
    )
  lines.push(filesLine(v))
  const ignored = Object.entries(v.ignored)
  lines.push(
    ignored.length === 0
      ? 'ignored by the fold: nothing'
      : `ignored by the fold: ${ignored.map(([why, n]) => `${n} ${why}`).join(', ')}`,
  )
  if (v.running.length > 0) {
    const more = v.running.length > shownRunning ? `, and ${v.running.length - shownRunning} more` : ''
    const state = v.outcome === null ? 'still running' : 'not finished when the run ended'
    lines.push(paint('yellow', `${state}: ${escapeForTerminal(v.running.slice(0, shownRunning).join(', '))}${more}`))
  }
  for (const letter of v.deadLetters.slice(0, shownProblems)) {
    lines.push(
      paint('yellow', `dead letter of ${escapeForTerminal(letter.origin)}: ${escapeForTerminal(letter.error)}`),
    )
  }
  lines.push(v.outcome === null ? 'the run has not ended' : `the run ended: ${escapeForTerminal(v.outcome)}`)
  for (const { place, kind, message } of v.problems.slice(0, shownProblems)) {
    lines.push(paint('red', `${place}  ${kind}: ${escapeForTerminal(message)}`))
  }
  if (v.problems.length > shownProblems)
    lines.push(`${v.problems.length - shownProblems} more problems; --json lists all`)
  lines.push(v.ok ? paint('green', 'sound') : paint('red', `${v.problems.length} problems`))
  return lines
}
