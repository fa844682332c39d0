/**
 * Load of `bench calls`: tool calls of one step, by trajectory, and a check of what the log says about their answers.
 *
 * in   the number of calls      out  facts that make a coordinator ask for all of them at once; a tally of the answers
 * Invariant: each call prints its own number, so an answer that is lost, doubled or given to another call is seen.
 * Eight in nine calls belong to trajectories with 4 calls, the others to trajectories with 100.
 */
import type { RolloutRequested, ToolCompleted, TurnCompleted } from '../../../messages/facts'
import { engineId, groupId, policyVersion, type TrajectoryId, taskId, trajectoryId } from '../../../messages/ids'
import { pythonTool } from '../../../sandbox'

export const TIMEOUT_MS = 20_000
const FEW = 4
const MANY = 100
const MANY_SHARE = 1 / 9

export interface LoadedTrajectory {
  readonly id: TrajectoryId
  readonly calls: number
  /** Number of the trajectory's first call. */
  readonly first: number
}

/** Lists the trajectories; those with many calls stand between the others at equal distances. */
export function trajectoriesOf(calls: number): readonly LoadedTrajectory[] {
  const many = Math.round((calls * MANY_SHARE) / MANY)
  const few = Math.ceil((calls - many * MANY) / FEW)
  const found: LoadedTrajectory[] = []
  let first = 0
  for (let n = 0; n < many + few; n++) {
    const isMany = Math.floor(((n + 1) * many) / (many + few)) > Math.floor((n * many) / (many + few))
    const each = Math.min(isMany ? MANY : FEW, calls - first)
    if (each > 0) found.push({ id: trajectoryId(groupId(`g${n}`), 0), calls: each, first })
    first += each
  }
  return found
}

export const codeOf = (n: number): string => `print(${n})`
export const printed = (n: number): string => `${n}\n`

export function requestOf({ id }: LoadedTrajectory, order: number): RolloutRequested {
  return {
    ...{ type: 'rollout.requested', at: Date.now(), trajectory: id, group: groupId(id.split('/')[0]!), member: 0 },
    ...{ groupSize: 1, purpose: 'train', step: 1, order, tokens: Int32Array.of(1, 2, 3), tools: [pythonTool.name] },
    task: { id: taskId('t'), messages: [{ role: 'user', content: 'print numbers' }], truth: '0', reward: 'math' },
    limits: {
      ...{ contextTokens: 8192, responseTokens: 8000, turns: 2, callsPerTurn: MANY },
      ...{ toolTimeoutMs: TIMEOUT_MS, toolResponseChars: 500 },
    },
    sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [0] },
    ...{ seed: 7, minVersion: policyVersion(0), deadlineMs: 3_600_000 },
  }
}

/** The turn in which the trajectory makes all its calls, as an engine that takes no time answers it. */
export function turnOf({ id, calls, first }: LoadedTrajectory): TurnCompleted {
  const asked = Array.from({ length: calls }, (_, k) => {
    const call = { name: pythonTool.name, arguments: { code: codeOf(first + k), input: '' } }
    return `<tool_call>\n${JSON.stringify(call)}\n</tool_call>`
  })
  const tokens = new Int32Array(16 * calls).fill(5)
  return {
    ...{ type: 'turn.completed', at: Date.now(), trajectory: id, turn: 0, attempt: 0, engine: engineId('e0') },
    ...{ tokens, logprobs: new Float32Array(tokens.length).fill(-0.5), text: asked.join('\n'), finish: 'stop' },
    segments: [{ policyVersion: policyVersion(0), start: 0, end: tokens.length }],
    ...{ cachedTokens: 0, preemptions: 0, timing: { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 } },
  }
}

export interface Tally {
  /** Calls with an answer that prints what the call asked for. */
  readonly right: number
  readonly wrong: number
  /** Number of answers that came after a call's first one, whatever their attempt. */
  readonly repeated: number
  /** Calls of trajectories with 100 calls that were answered before the last call of the others. */
  readonly manyBeforeFew: number
  /** Calls answered by each executor. */
  readonly byExecutor: Readonly<Record<string, number>>
}

/** @param answers in the log's order */
export function tallyOf(trajectories: readonly LoadedTrajectory[], answers: readonly ToolCompleted[]): Tally {
  const known = new Map(trajectories.map(one => [one.id, one]))
  const seen = new Set<number>()
  const byExecutor: Record<string, number> = {}
  let [right, wrong, repeated, many, manyBeforeFew] = [0, 0, 0, 0, 0]
  for (const { trajectory, call, status, stdout, executor } of answers) {
    const { first, calls } = known.get(trajectory)!
    if (seen.has(first + call)) {
      repeated++
      continue
    }
    seen.add(first + call)
    if (status === 'ok' && stdout === printed(first + call)) right++
    else wrong++
    byExecutor[executor ?? 'none'] = (byExecutor[executor ?? 'none'] ?? 0) + 1
    if (calls > FEW) many++
    else manyBeforeFew = many
  }
  return { right, wrong, repeated, manyBeforeFew, byExecutor }
}
