/**
 * Script of a rehearsal's rollouts: their numbers of turns and tokens, their tool calls, and which answers are right.
 *
 * in   a request for a turn        out  the turn's tokens, as many as a trained model samples, and their text
 * Lengths are distributed as in the simulator's loads (kernels/simulator/workload.ts), with a mean of half the response
 * budget. Every turn but the last ends with a tool call, one in eight of which fails; the last ends with an answer.
 * Groups differ in their share of right answers, so that some are all right or all wrong and are filtered.
 * Invariant: a turn's tokens follow from its trajectory, its number and the budget of its group's first request, so
 * that a turn that is asked again gets the same tokens.
 */
import type { GenerateRequest } from '../../backends/engines/engine'
import type { Renderer } from '../../backends/renderer/renderer'
import type { RewardConfig } from '../../config'
import { baseShape, type DrawnTurn, pcg32, printToolCall, type TracedTrajectory, workload } from '../../kernels'
import { type GroupId, groupOf, memberOf, type TrajectoryId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { answerIn } from '../dryRun/reduced'

/** Right answer to every problem of a rehearsal; `wrong` is the answer of every rollout that is wrong. */
export const truth = '17'
const wrong = '18'

const prose =
  'Let us think about the problem again. The sum has as many terms as there are divisors, and each term is at most the square root of the whole, so we can bound it and check the rest with a small program. '
const goodCode = 'print(sum(k for k in range(100) if k % 7 == 3))'
const badCode = "raise ValueError('no solution')"
const calls = { good: callOf(goodCode), bad: callOf(badCode) } as const
const endings = (place: RewardConfig['place']) =>
  ({ ...calls, right: answerIn(place, truth), wrong: answerIn(place, wrong) }) as const
type Ending = keyof ReturnType<typeof endings>

/** Texts from which the tokenizer of the rehearsal's model is trained. */
export const scriptTexts = (place: RewardConfig['place']): readonly string[] => [
  prose,
  ...Object.values(endings(place)),
]

/** Share of tool calls that fail. */
const failedShare = 0.125
/** Mean length of a rollout, as a share of its response budget; the estimate assumes the same (config/estimate). */
const meanShareOfBudget = 0.5
/** Spread of the groups: a group's log-odds of a right answer are uniform between −2 and +2 times this number. */
const oddsSpread = 2.5

export interface ScriptOptions {
  /**
   * Upper bound on a training rollout's response tokens. Lengths are drawn around half of it, or around half of the
   * request's budget where that is smaller; an evaluation with a larger budget draws from the same lengths.
   */
  readonly responseTokens: number
  /** Upper bound on a training rollout's turns. */
  readonly turns: number
  readonly groupSize: number
  readonly vocabulary: number
  /** Place in the response at which the reward reads the answer. */
  readonly place: RewardConfig['place']
}

export interface Script {
  draw(request: GenerateRequest, maxTokens: number): DrawnTurn
  decode(tokens: Int32Array): string
}

/** Encodes the script's texts with the run's tokenizer. @throws Error if decoding token by token changes a text */
export async function openScript(
  renderer: Pick<Renderer, 'encode' | 'decode'>,
  options: ScriptOptions,
): Promise<Script> {
  const texts = { prose, ...endings(options.place) }
  const encoded = new Map<string, Int32Array>()
  for (const [name, text] of Object.entries(texts)) encoded.set(name, await renderer.encode(text))
  const words = new Map<number, string>()
  for (const tokens of encoded.values()) {
    for (const token of tokens) if (!words.has(token)) words.set(token, await renderer.decode(Int32Array.of(token)))
  }
  const decode = (tokens: Int32Array) => {
    const parts: string[] = []
    for (const token of tokens) parts.push(words.get(token) ?? '')
    return parts.join('')
  }
  for (const [name, text] of Object.entries(texts)) {
    if (decode(encoded.get(name)!) !== text)
      throw new Error(
        `the tokenizer of the rehearsal's model does not decode the script's text '${name}' as it was encoded`,
      )
  }
  const plans = new Map<GroupId, readonly TracedTrajectory[]>()
  const ofProse = encoded.get('prose')!
  const logprob = -Math.log(options.vocabulary)

  function planOf(trajectory: TrajectoryId, budgetTokens: number): TracedTrajectory {
    const group = groupOf(trajectory)
    const { responseTokens, turns, groupSize } = options
    let plan = plans.get(group)
    if (plan === undefined) {
      const shape = {
        ...baseShape,
        ...{ groups: 1, groupSize, turns: [1, turns] as const, capTokens: Number.MAX_SAFE_INTEGER },
        meanTokens: meanShareOfBudget * Math.min(budgetTokens, responseTokens),
      }
      plan = workload(shape, deriveSeed('rehearsal', group))
      plans.set(group, plan)
    }
    return plan[memberOf(trajectory) % groupSize]!
  }

  function endingOf(trajectory: TrajectoryId, turn: number, isLast: boolean): Ending {
    const random = pcg32(deriveSeed('rehearsal', trajectory, turn))
    if (!isLast) return random.uniform() < failedShare ? 'bad' : 'good'
    const ofGroup = pcg32(deriveSeed('rehearsal/odds', groupOf(trajectory)))
    const odds = Math.exp(oddsSpread * (2 * ofGroup.uniform() - 1) * 2)
    return random.uniform() < odds / (1 + odds) ? 'right' : 'wrong'
  }

  return {
    decode,
    draw({ trajectory, turn = 0, resumedTokens, sampling }, maxTokens) {
      const plan = planOf(trajectory, resumedTokens + maxTokens)
      const last = plan.turns.length - 1
      const tail = encoded.get(endingOf(trajectory, turn, turn >= last))!
      const planned = Math.max(plan.turns[Math.min(turn, last)]!.newTokens, tail.length + 1)
      const whole = new Int32Array(planned)
      const before = planned - tail.length - 1
      for (let at = 0; at < before; at += ofProse.length)
        whole.set(ofProse.subarray(0, Math.min(ofProse.length, before - at)), at)
      whole.set(tail, before)
      whole[planned - 1] = sampling.stopTokens[0] ?? 0
      const tokens = whole.slice(resumedTokens, resumedTokens + maxTokens)
      const finish = resumedTokens + tokens.length < planned ? 'length' : 'stop'
      return { tokens, logprobs: new Float32Array(tokens.length).fill(logprob), finish }
    },
  }
}

function callOf(code: string): string {
  return printToolCall(pythonTool.name, { code, input: '' })
}
