/**
 * `troupe replay limits G|T|--all --turns 5`: what if the limits had been others?
 *
 * in   recorded trajectories, limits over theirs        out  which end earlier, which would need a new generation; rewards of what
 *      ends otherwise, by the recipe's own graders; selection and advantages of each group, beside the recorded ones
 * Invariant: a group in which a member would need a new generation is not decided: its selection is not known.
 */
import { type Command, InvalidArgumentError } from 'commander'
import type { Grader } from '../../actors/verification/verifierPort'
import type { RecipeConfig } from '../../config'
import { type SelectionOptions, selectGroup } from '../../kernels'
import { configOf } from '../../replay/log/recordedConfig'
import { modelDirectories, tokenTexts } from '../../replay/tokens/tokenTexts'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { type Counted, countedTrajectories, groupsOf, selectionOf } from '../../replay/trajectories/trajectory'
import { rewardedMembers, selectionOptions } from '../../replay/whatIf/groups'
import { type Limited, type Limits, limited } from '../../replay/whatIf/limited'
import { graderDeadlineMs, gradesAtOnce, recordedGrader } from '../../replay/whatIf/recordedGrader'
import { TroupeError } from '../../runtime/errors'
import { escapeForTerminal, painter, percent } from '../io/terminal'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface LimitsOptions extends ReadOptions {
  readonly all?: boolean
  readonly json?: boolean
  readonly turns?: number
  readonly responseTokens?: number
  readonly contextTokens?: number
  readonly toolResponseChars?: number
  readonly callsPerTurn?: number
  readonly toolTimeoutMs?: number
}

/** A trajectory under the other limits, beside the record. */
export interface LimitedLine {
  readonly trajectory: string
  readonly group: string
  readonly kind: Limited['kind']
  readonly why: string | null
  readonly fromTurn: number | null
  readonly outcome: readonly [recorded: string, now: string | null]
  readonly turns: readonly [recorded: number, now: number | null]
  readonly sampledTokens: readonly [recorded: number, now: number | null]
  readonly reward: readonly [recorded: number | null, now: number | null]
  /** kept, dropped or rejected; null: not decided, or not known. */
  readonly selection: readonly [recorded: string | null, now: string | null]
  readonly advantage: readonly [recorded: number | null, now: number | null]
}

const names = [
  'turns',
  'responseTokens',
  'contextTokens',
  'toolResponseChars',
  'callsPerTurn',
  'toolTimeoutMs',
] as const satisfies readonly (keyof Limits)[]
const shownLines = 40

export function registerLimits(replay: Command): void {
  const command = replay
    .command('limits [target]')
    .description('what if the limits had been others: outcomes, rewards, selection and advantages')
    .option('--all', 'every trajectory of the run')
    .option('--turns <n>', 'turns of a trajectory', most)
    .option('--response-tokens <n>', 'tokens after the prompt, as 4096 or 4K', most)
    .option('--context-tokens <n>', 'tokens with the prompt', most)
    .option('--tool-response-chars <n>', "characters of a tool's answer", most)
    .option('--calls-per-turn <n>', 'tool calls of a turn', most)
    .option('--tool-timeout-ms <n>', 'for one call', most)
    .option('--json', 'a JSON line a trajectory, last a summary')
  withRun(command).action(run)
}

async function run(target: string | undefined, options: LimitsOptions): Promise<void> {
  const change = Object.fromEntries(names.flatMap(n => (options[n] === undefined ? [] : [[n, options[n]]])))
  if (Object.keys(change).length === 0) throw wrong('no limit was given', 'as in --turns 5, or --response-tokens 4K')
  if (target === undefined && options.all !== true) {
    throw wrong('no trajectory and no group was named', 'troupe replay limits G --turns 5, or --all')
  }
  const recorded = await openRecorded(options)
  const closers: (() => Promise<void>)[] = []
  try {
    const ids = await trajectoriesOf(recorded)
    const wants = target === undefined ? () => true : resolveTarget(target, ids)
    // A group is decided together: a trajectory is looked at with its group.
    const groups = new Set(ids.filter(wants).map(id => id.slice(0, id.lastIndexOf('/'))))
    const all = await countedTrajectories(recorded, id => groups.has(id.slice(0, id.lastIndexOf('/'))))
    const config = await configOf(recorded)
    const texts = tokenTexts(await modelDirectories(recorded))
    let opened: Promise<Grader> | undefined
    const deadlineMs = graderDeadlineMs + config.reward.timeoutMs
    const judge = async (counted: Counted, response: string): Promise<number | null> => {
      // The promise: many ask at once.
      opened ??= recordedGrader(config, {}, closers)
      const grader = await opened
      const { task } = counted.request
      const grade = await grader({ response, truth: task.truth, task }, AbortSignal.timeout(deadlineMs))
      return grade.reward
    }
    const lines = (await underLimits(all, config, change, texts, judge)).filter(line => wants(line.trajectory))
    if (options.json) for (const line of lines) process.stdout.write(`${jsonText(line)}\n`)
    const summary = summaryOf(lines, change)
    process.stdout.write(options.json ? `${jsonText(summary)}\n` : `${report(lines, summary).join('\n')}\n`)
    reportFaults(recorded)
  } finally {
    for (const close of closers) await close()
    await recorded.close()
  }
}

/** Every trajectory beside what it would have been. `judge`: the reward of a response; null: it has none. */
async function underLimits(
  all: readonly Counted[],
  config: RecipeConfig,
  change: Partial<Limits>,
  texts: Parameters<typeof limited>[2],
  judge: (counted: Counted, response: string) => Promise<number | null>,
): Promise<readonly LimitedLine[]> {
  const results = new Map<string, { readonly now: Limited; readonly counted: Counted }>()
  for (let at = 0; at < all.length; at += gradesAtOnce) {
    await Promise.all(
      all.slice(at, at + gradesAtOnce).map(async counted => {
        const now = limited(counted, change, texts)
        results.set(counted.trajectory, { now, counted: await recast(counted, now, judge) })
      }),
    )
  }
  const lines: LimitedLine[] = []
  for (const [group, members] of groupsOf(all)) {
    const responseTokens = change.responseTokens ?? members[0]!.request.limits.responseTokens
    const selected = reselect(members, selectionOptions(config, group, responseTokens), results)
    for (const counted of members) {
      const { now, counted: other } = results.get(counted.trajectory)!
      const known = now.kind === 'same' || now.kind === 'cut'
      const { selection, advantage } = selectionOf(counted)
      const member = selected?.get(counted.request.member) ?? null
      lines.push({
        ...{ trajectory: counted.trajectory, group, kind: now.kind },
        why: now.kind === 'generate' ? now.why : null,
        fromTurn: now.kind === 'generate' ? now.fromTurn : null,
        outcome: [outcomeOf(counted), known ? outcomeOf(other) : null],
        turns: [counted.finished?.turns ?? counted.texts.length, known ? (other.finished?.turns ?? null) : null],
        sampledTokens: [counted.finished?.sampledTokens ?? 0, known ? (other.finished?.sampledTokens ?? null) : null],
        reward: [counted.reward?.reward ?? null, known ? (other.reward?.reward ?? null) : null],
        selection: [selection, member?.selection ?? null],
        advantage: [advantage, member?.advantage ?? null],
      })
    }
  }
  return lines
}

const outcomeOf = ({ finished }: Counted): string =>
  finished === null ? 'running' : finished.outcome === 'truncated' ? `truncated (${finished.reason})` : finished.outcome

/** The trajectory with the end that it would have had, judged where its response is another. */
async function recast(
  counted: Counted,
  now: Limited,
  judge: (counted: Counted, response: string) => Promise<number | null>,
): Promise<Counted> {
  if (now.kind !== 'cut') return counted
  const response = now.texts.join('\n')
  const same = counted.reward !== null && response === counted.texts.join('\n')
  const reward = same ? counted.reward.reward : await judge(counted, response)
  const { trajectory } = counted
  const assigned = { type: 'reward.assigned', at: 0, trajectory, attempt: 0, answer: '', how: '' } as const
  const judged = reward === null ? null : { ...assigned, reward }
  return { ...counted, texts: now.texts, finished: now.finished, reward: judged }
}

type Selected = { readonly selection: 'kept' | 'dropped' | 'rejected'; readonly advantage: number | null }

/** What the recipe's selection keeps of a group; undefined where a member is not known, or the group was never closed. */
function reselect(
  members: readonly Counted[],
  options: SelectionOptions,
  results: ReadonlyMap<string, { readonly now: Limited; readonly counted: Counted }>,
): ReadonlyMap<number, Selected> | undefined {
  const now = members.map(m => results.get(m.trajectory)!)
  const isKnown = now.every(r => r.now.kind === 'same' || r.now.kind === 'cut')
  if (!isKnown || members.every(m => m.decision === null)) return undefined
  const chosen = selectGroup(rewardedMembers(now.map(r => r.counted)), options)
  const kept = new Map(chosen.kind === 'rejected' ? [] : chosen.kept.map(k => [k.member, k.advantage]))
  return new Map(
    members.map(({ request: { member } }): [number, Selected] => {
      if (chosen.kind === 'rejected') return [member, { selection: 'rejected', advantage: null }]
      const advantage = kept.get(member)
      return [member, { selection: advantage === undefined ? 'dropped' : 'kept', advantage: advantage ?? null }]
    }),
  )
}

type Summary = ReturnType<typeof summaryOf>

function summaryOf(lines: readonly LimitedLine[], change: Readonly<Record<string, number>>) {
  const known = lines.filter(l => l.kind === 'same' || l.kind === 'cut')
  const rewarded = known.filter(l => l.reward[0] !== null && l.reward[1] !== null)
  const mean = (values: readonly number[]) =>
    values.length === 0 ? null : values.reduce((sum, v) => sum + v, 0) / values.length
  const share = (side: 0 | 1) => mean(known.map(l => (l.outcome[side]?.startsWith('truncated') ? 1 : 0)))
  const groups = [...new Set(lines.map(l => l.group))].map(g => lines.filter(l => l.group === g))
  const decided = groups.filter(of => of.some(l => l.selection[0] !== null))
  const open = decided.filter(of => of.every(l => l.selection[1] === null))
  const isSame = (l: LimitedLine) => l.selection[0] === l.selection[1] && l.advantage[0] === l.advantage[1]
  const count = (kind: Limited['kind']) => lines.filter(l => l.kind === kind).length
  return {
    type: 'summary',
    limits: change,
    trajectories: lines.length,
    same: count('same'),
    cut: count('cut'),
    generate: count('generate'),
    running: count('running'),
    /** Of those whose end is known. */
    meanReward: [mean(rewarded.map(l => l.reward[0]!)), mean(rewarded.map(l => l.reward[1]!))],
    truncatedShare: [share(0), share(1)],
    sampledTokens: [0, 1].map(side => known.reduce((sum, l) => sum + (l.sampledTokens[side] ?? 0), 0)),
    groups: decided.length,
    groupsNotKnown: open.length,
    groupsAsRecorded: decided.filter(of => !open.includes(of) && of.every(isSame)).length,
    groupsOtherwise: decided.filter(of => !open.includes(of) && !of.every(isSame)).length,
    kept: [0, 1].map(side => lines.filter(l => l.selection[side] === 'kept').length),
  } as const
}

const paint = painter(process.stdout)

function report(lines: readonly LimitedLine[], summary: Summary): string[] {
  const limits = Object.entries(summary.limits).map(([name, value]) => `${name} ${value}`)
  const out = [`under ${limits.join(', ')}`]
  const changed = lines.filter(l => l.kind !== 'same' || l.selection[0] !== l.selection[1])
  const both = <T>([was, now]: readonly [T, T | null], text: (value: T) => string): string =>
    now === null ? `${text(was)} → ?` : was === now ? text(was) : `${text(was)} → ${text(now)}`
  const number = (value: number | null) =>
    value === null ? '–' : Number.isInteger(value) ? String(value) : value.toFixed(3)
  const advantages = ({ selection, advantage: [was, now] }: LimitedLine): string => {
    if (selection[1] === null) return `${number(was)} → ?`
    return was === now ? number(was) : `${number(was)} → ${number(now)}`
  }
  for (const l of changed.slice(0, shownLines)) {
    const head = escapeForTerminal(l.trajectory).padEnd(16)
    if (l.kind === 'running') out.push(`${head}  still running`)
    else if (l.kind === 'generate') {
      out.push(
        paint('yellow', `${head}  needs a new generation from turn ${l.fromTurn}: ${escapeForTerminal(l.why ?? '')}`),
      )
    } else {
      const what = `${both(l.outcome, escapeForTerminal)}, turns ${both(l.turns, number)}, reward ${both(l.reward, number)}`
      const selection =
        l.selection[0] === null ? '' : `, ${both(l.selection, s => s ?? '–')}, advantage ${advantages(l)}`
      out.push(`${head}  ${what}${selection}`)
    }
  }
  if (changed.length > shownLines) out.push(`… ${changed.length - shownLines} more; --json lists all`)
  const { same, cut, generate, running, meanReward, truncatedShare, sampledTokens } = summary
  out.push(
    `${summary.trajectories} trajectories: ${same} end as recorded, ${cut} otherwise, ${generate} need a new generation${running > 0 ? `, ${running} still run` : ''}`,
    `of the ${same + cut} that are known: mean reward ${number(meanReward[0])} → ${number(meanReward[1])}, truncated ${percent(truncatedShare[0])} → ${percent(truncatedShare[1])}, sampled tokens ${sampledTokens[0]} → ${sampledTokens[1]}`,
    `${summary.groups} groups decided: ${summary.groupsAsRecorded} as recorded, ${summary.groupsOtherwise} otherwise, ${summary.groupsNotKnown} not known`,
  )
  return out
}

function most(text: string): number {
  const match = /^(\d{1,9})([kK]?)$/.exec(text.trim())
  const value = match === null ? Number.NaN : Number(match[1]) * (match[2] === '' ? 1 : 1024)
  if (value >= 1) return value
  throw new InvalidArgumentError('It must be a whole number from 1 on, as 5, 4096 or 4K.')
}

const wrong = (message: string, hint: string) =>
  new TroupeError('cli.bad_limits', { boundary: 'cli', retriable: false, message, hint })
