/**
 * `troupe replay lineage ID`: what came of what: from a step down to tool calls, from a trajectory up to the steps.
 *
 * in   a step (`step 3`, `3`), a group, a trajectory, or --text        out  the chain, with advantages and results
 */
import type { Command } from 'commander'
import type { StepCompleted, WeightsPublished } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { callsOf, type ExportedCall } from '../../replay/exchange/exportedTrajectory'
import { type TriedIn, triedSteps } from '../../replay/learning/learnerLog'
import { factsOf, type RecordedRun } from '../../replay/log/recordedRun'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { readTrajectories, selectionOf, type Trajectory } from '../../replay/trajectories/trajectory'
import { TroupeError } from '../../runtime/errors'
import { escapeForTerminal, painter } from '../io/terminal'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface LineageOptions extends ReadOptions {
  readonly text?: string
  readonly json?: boolean
}

export interface Lineage {
  readonly trajectory: string
  readonly purpose: string
  readonly policyVersions: readonly number[]
  readonly reward: number | null
  readonly selection: string | null
  readonly advantage: number | null
  /** The step that learned from it, and the version that came of it. */
  readonly trainedIn: number | null
  /** The step that was to learn from it, where that was rejected or is not over. */
  readonly triedIn: { readonly step: number; readonly outcome: 'rejected' | 'open' } | null
  readonly publishedAs: number | null
  readonly forkOf: { readonly parent: string; readonly run: string | null; readonly turn: number } | null
  readonly forks: readonly string[]
  readonly calls: readonly ExportedCall[]
}

export function registerLineage(replay: Command): void {
  const command = replay
    .command('lineage [id]')
    .description('from a step down to its tool calls, from a trajectory up to the steps that learned from it')
    .option('--text <text>', 'only trajectories with a call in whose code or result it stands, as os.system')
    .option('--json', 'a JSON line a trajectory')
  withRun(command).action(lineage)
}

async function lineage(asked: string | undefined, options: LineageOptions): Promise<void> {
  if (asked === undefined && options.text === undefined) {
    throw new TroupeError('cli.no_target', {
      boundary: 'cli',
      retriable: false,
      message: 'no step, group or trajectory was named',
      hint: 'troupe replay lineage 3 (a step), lineage T, or --text os.system',
    })
  }
  const recorded = await openRecorded(options)
  try {
    const tried = await triedSteps(recorded)
    const step = asked === undefined ? undefined : stepOf(asked)
    const wants = await wanted(recorded, asked, step, tried)
    const completed = await factsOf(recorded, 'learner', ['step.completed', 'weights.published'])
    const versions = new Map(
      completed.flatMap(f => (f.type === 'step.completed' ? [[f.step, f.version] as const] : [])),
    )
    const forks = await factsOf(recorded, 'runs', ['trajectory.forked'])
    const text = options.text?.toLowerCase()
    const found = (await readTrajectories(recorded, wants))
      .map((trajectory): Lineage => {
        const last = tried.get(trajectory.id)
        const trainedIn = last?.outcome === 'completed' ? last.step : null
        const fork = forks.find(f => f.child === trajectory.id)
        return {
          trajectory: trajectory.id,
          purpose: trajectory.request.purpose,
          policyVersions: versionsOf(trajectory),
          reward: trajectory.reward?.reward ?? null,
          selection: selectionOf(trajectory).selection,
          advantage: selectionOf(trajectory).advantage,
          trainedIn,
          triedIn:
            last === undefined || last.outcome === 'completed' ? null : { step: last.step, outcome: last.outcome },
          publishedAs: trainedIn === null ? null : (versions.get(trainedIn) ?? null),
          forkOf: fork === undefined ? null : { parent: fork.parent, run: fork.parentRun ?? null, turn: fork.turn },
          forks: forks.filter(f => f.parent === trajectory.id && f.parentRun === undefined).map(f => f.child),
          calls: callsOf(trajectory).filter(call => text === undefined || callHas(call, text)),
        }
      })
      .filter(d => text === undefined || d.calls.length > 0)
    if (options.json) for (const one of found) process.stdout.write(`${jsonText(one)}\n`)
    else process.stdout.write(`${[...stepLines(step, completed), ...found.flatMap(lines), total(found)].join('\n')}\n`)
    reportFaults(recorded)
  } finally {
    await recorded.close()
  }
}

const stepOf = (asked: string): number | undefined => {
  const match = /^(?:step[ -]?)?(\d{1,9})$/.exec(asked)
  return match === null ? undefined : Number(match[1])
}

async function wanted(
  recorded: RecordedRun,
  asked: string | undefined,
  step: number | undefined,
  tried: ReadonlyMap<TrajectoryId, TriedIn>,
): Promise<(id: string) => boolean> {
  if (asked === undefined) return () => true
  if (step === undefined) return resolveTarget(asked, await trajectoriesOf(recorded))
  const members = new Set<string>([...tried].filter(([, t]) => t.step === step).map(([id]) => id))
  if (members.size > 0) return id => members.has(id)
  throw new TroupeError('cli.no_step', {
    boundary: 'cli',
    retriable: false,
    message: `step ${step} was never started`,
    hint: `steps of this run: ${[...new Set([...tried.values()].map(t => t.step))].join(', ') || 'none'}`,
  })
}

function versionsOf(trajectory: Trajectory): readonly number[] {
  const versions = new Set<number>()
  for (const { message } of trajectory.entries) {
    if ('segments' in message) for (const s of message.segments) versions.add(s.policyVersion)
  }
  return [...versions].sort((a, b) => a - b)
}

const callHas = (call: ExportedCall, text: string): boolean =>
  [
    JSON.stringify(call.arguments),
    ...Object.values(call.arguments).map(String),
    call.stdout,
    call.stderr,
    call.text,
  ].some(one => one.toLowerCase().includes(text))

const paint = painter(process.stdout)
const short = (text: string) => {
  const line = escapeForTerminal(text.replace(/\s+/g, ' ').trim())
  return line.length > 90 ? `${line.slice(0, 89)}…` : line
}

function stepLines(step: number | undefined, facts: readonly (StepCompleted | WeightsPublished)[]): string[] {
  if (step === undefined) return []
  const completed = facts.find((f): f is StepCompleted => f.type === 'step.completed' && f.step === step)
  const published = facts.find((f): f is WeightsPublished => f.type === 'weights.published' && f.step === step)
  const loss = completed?.metrics.loss
  return [
    `step ${step}${completed === undefined ? ', not completed' : `: version ${completed.version}, loss ${loss === undefined ? '–' : loss.toPrecision(5)}`}${published === undefined ? '' : `, weights ${published.digest.slice(0, 12)}`}`,
  ]
}

function lines(d: Lineage): string[] {
  const learned =
    d.trainedIn === null
      ? `${d.triedIn === null ? 'no step learned from it' : `step ${d.triedIn.step}, which ${d.triedIn.outcome === 'rejected' ? 'was rejected' : 'is not over'}, was to learn from it`}${d.selection === null ? '' : ` (${d.selection})`}`
      : `step ${d.trainedIn} learned from it, advantage ${d.advantage?.toFixed(3) ?? '–'}${d.publishedAs === null ? '' : ` → version ${d.publishedAs}`}`
  const out = [
    `├ ${paint('bold', escapeForTerminal(d.trajectory))}  ${d.purpose}, policy ${d.policyVersions.join(', ') || '–'}, reward ${d.reward ?? '–'}: ${learned}`,
  ]
  if (d.forkOf !== null) {
    const of = `${d.forkOf.parent}${d.forkOf.run === null ? '' : ` of run ${d.forkOf.run}`}`
    out.push(`│   forked from ${escapeForTerminal(of)} at turn ${d.forkOf.turn}`)
  }
  if (d.forks.length > 0) out.push(`│   forks: ${d.forks.map(escapeForTerminal).join(', ')}`)
  for (const call of d.calls) {
    const code = typeof call.arguments.code === 'string' ? call.arguments.code : JSON.stringify(call.arguments)
    out.push(
      `│   turn ${call.turn}, call ${call.call}: ${short(code)} → ${paint(call.status === 'ok' ? 'green' : 'red', call.status)}: ${short(call.stdout || call.stderr || call.text)}`,
    )
  }
  return out
}

function total(found: readonly Lineage[]): string {
  const groups = new Set(found.map(d => groupOf(d.trajectory as TrajectoryId)))
  const learned = found.filter(d => d.trainedIn !== null)
  const up = learned.filter(d => (d.advantage ?? 0) > 0).length
  const down = learned.filter(d => (d.advantage ?? 0) < 0).length
  return `${found.length} trajectories of ${groups.size} groups, ${found.reduce((n, d) => n + d.calls.length, 0)} calls; ${learned.length} learned from: ${up} encouraged, ${down} discouraged`
}
