/**
 * `troupe replay diff A B`: where two trajectories part, to the token.
 *
 * in   two trajectories of a run, or of two runs        out  what is common, the first difference, how each ended
 */
import type { Command } from 'commander'
import { type AssembledSequence, assembleSequence } from '../../kernels'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { modelDirectories, type TokenTexts, tokenTexts } from '../../replay/tokens/tokenTexts'
import { resolveId, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { factsIn, readTrajectories, selectionOf, type Trajectory } from '../../replay/trajectories/trajectory'
import { escapeForTerminal, painter } from '../io/terminal'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface DiffOptions extends ReadOptions {
  readonly otherRun?: string
  readonly json?: boolean
}

/** Tokens around the first difference that are shown. */
const around = 8

export interface TokenDifference {
  /** Tokens that both begin with. */
  readonly common: number
  /** Of A and B: their lengths are all that differs where one ends there. */
  readonly a: TokenSide
  readonly b: TokenSide
}

interface TokenSide {
  readonly tokens: number
  /** prompt, turn N, or what was appended after turn N; end: it has no more. */
  readonly where: string
  readonly token: number | null
  readonly logprob: number | null
  readonly policyVersion: number | null
  /** Some tokens before it, it, and some after. */
  readonly window: readonly number[]
}

export function registerDiff(replay: Command): void {
  const command = replay
    .command('diff <a> <b>')
    .description('the first token at which two trajectories differ, and how each ended')
    .option('--other-run <id>', 'B is of this run, on the same bus')
    .option('--json', 'one JSON object; exit 0 where nothing differs, else 1')
  withRun(command).action(diff)
}

async function diff(askedA: string, askedB: string, options: DiffOptions): Promise<void> {
  const recorded = await openRecorded(options)
  const { at: _, ...elsewhere } = options
  const other = options.otherRun === undefined ? recorded : await openRecorded({ ...elsewhere, run: options.otherRun })
  try {
    const a = await one(recorded, askedA)
    const b = await one(other, askedB)
    const difference = firstDifference(sequenceOf(a), sequenceOf(b))
    if (options.json) {
      const sides = { a: summaryOf(a), b: summaryOf(b) }
      process.stdout.write(`${jsonText({ same: difference === null, difference, ...sides })}\n`)
    } else {
      const texts = tokenTexts(await modelDirectories(recorded))
      process.stdout.write(`${lines(a, b, difference, texts).join('\n')}\n`)
    }
    reportFaults(recorded)
    if (other !== recorded) reportFaults(other)
    process.exitCode = difference === null ? 0 : 1
  } finally {
    if (other !== recorded) await other.close()
    await recorded.close()
  }
}

async function one(recorded: RecordedRun, asked: string): Promise<Trajectory> {
  const id = resolveId(asked, await trajectoriesOf(recorded))
  const [trajectory] = await readTrajectories(recorded, t => t === id)
  return trajectory!
}

const sequenceOf = (trajectory: Trajectory): AssembledSequence & { readonly spans: readonly Span[] } => ({
  ...assembleSequence(factsIn(trajectory)),
  spans: spansOf(trajectory),
})

interface Span {
  readonly end: number
  readonly where: string
}

/** What each stretch of the sequence is. */
function spansOf(trajectory: Trajectory): readonly Span[] {
  const spans: Span[] = []
  let end = 0
  for (const fact of factsIn(trajectory)) {
    if (!('tokens' in fact)) continue
    end += fact.tokens.length
    const where =
      fact.type === 'rollout.requested'
        ? 'prompt'
        : fact.type === 'context.appended'
          ? `tool response after turn ${fact.turn}`
          : `turn ${fact.turn}`
    spans.push({ end, where })
  }
  return spans
}

function firstDifference(
  a: AssembledSequence & { readonly spans: readonly Span[] },
  b: AssembledSequence & { readonly spans: readonly Span[] },
): TokenDifference | null {
  const shorter = Math.min(a.tokens.length, b.tokens.length)
  let common = 0
  while (common < shorter && a.tokens[common] === b.tokens[common]) common++
  if (common === a.tokens.length && common === b.tokens.length) return null
  return { common, a: sideOf(a, common), b: sideOf(b, common) }
}

function sideOf(sequence: AssembledSequence & { readonly spans: readonly Span[] }, at: number): TokenSide {
  const { tokens, mask, engineLogprobs, versions, spans } = sequence
  const isThere = at < tokens.length
  const sampled = isThere && mask[at] === 1
  return {
    tokens: tokens.length,
    where: isThere ? (spans.find(s => at < s.end)?.where ?? 'end') : 'end',
    token: isThere ? tokens[at]! : null,
    logprob: sampled ? engineLogprobs[at]! : null,
    policyVersion: sampled ? versions[at]! : null,
    window: [...tokens.slice(Math.max(0, at - around), at + around)],
  }
}

const summaryOf = (trajectory: Trajectory) => ({
  trajectory: trajectory.id,
  outcome: trajectory.finished?.outcome ?? 'running',
  turns: trajectory.texts.length,
  toolCalls: trajectory.finished?.toolCalls ?? null,
  toolErrors: trajectory.finished?.toolErrors ?? null,
  reward: trajectory.reward?.reward ?? null,
  ...selectionOf(trajectory),
})

const paint = painter(process.stdout)

function lines(a: Trajectory, b: Trajectory, difference: TokenDifference | null, texts: TokenTexts): string[] {
  const row = (name: string, trajectory: Trajectory) => {
    const s = summaryOf(trajectory)
    return `${name}  ${escapeForTerminal(s.trajectory).padEnd(16)} ${s.outcome}, ${s.turns} turns, ${s.toolErrors ?? 0} of ${s.toolCalls ?? 0} calls failed, reward ${s.reward ?? '–'}${s.selection === null ? '' : `, ${s.selection}`}`
  }
  const head = [row('A', a), row('B', b)]
  if (difference === null) return [...head, 'every token is the same']
  const text = (token: number) => texts(token) ?? `<${token}>`
  const side = (name: string, { where, token, logprob, policyVersion, window }: TokenSide) => {
    const before = window.slice(0, Math.min(around, difference.common))
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
