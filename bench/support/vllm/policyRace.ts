/**
 * Compares scheduling policies on a vLLM server whose KV cache is small enough to cause preemptions.
 *
 * in   a server        out  preemptions and prefilled tokens that the server counted under each policy, tokens a second
 * Each policy has its own run of Troupe; all runs use the one server and alternate step by step with the same load.
 */
import type { PolicyName } from '../../../kernels'
import { median } from '../../report'
import { figuresOf, turnsOf } from '../rolloutRound'
import { type StartedLoad, startLoad, type VllmLoad } from './load'
import { type BenchServer, blockTokens } from './server'

const load: VllmLoad = {
  ...{ groups: 4, groupSize: 8, promptWords: 40, contextTokens: 1024 },
  shape: { turns: [2, 4], newTokens: [24, 96], toolMs: [50, 400] },
}
/**
 * Server with a KV cache of 3072 tokens beside vLLM's null block. The load needs about 11,000 when all its contexts are
 * full-length.
 */
export const policyServer = {
  ...{ contextTokens: load.contextTokens, maxSequences: 32 },
  blocks: 3072 / blockTokens + 1,
}

const policies = ['static', 'least-requests', 'kv-headroom'] as const satisfies readonly PolicyName[]
type Raced = (typeof policies)[number]

const rounds = 3

interface Arm {
  readonly started: StartedLoad
  readonly preemptions: number[]
  readonly tokensPerSecond: number[]
  /** Number of prompt tokens that the server computed in each round, recomputed ones included. */
  readonly prefilled: number[]
}

export interface PolicyRace {
  readonly metrics: Readonly<Record<string, number>>
  /**
   * Preemptions of static divided by those of kv-headroom, over all rounds; zero preemptions of kv-headroom count as
   * one.
   */
  readonly fewerPreemptions: number
  /** Tokens a second of kv-headroom divided by those of static: the median over the rounds. */
  readonly speedUp: number
}

export async function policyRace(server: BenchServer): Promise<PolicyRace> {
  const arms = new Map<Raced, Arm>()
  try {
    for (const policy of policies) {
      const started = await startLoad(server, load, policy, rounds)
      arms.set(policy, { started, preemptions: [], tokensPerSecond: [], prefilled: [] })
    }
    for (let round = 0; round < rounds; round++) {
      const order = policies.map((_, k) => policies[(k + round) % policies.length]!)
      for (const policy of order) await playRound(server, policy, arms.get(policy)!)
    }
  } finally {
    for (const { started } of arms.values()) await started.close()
  }
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0)
  const metrics: Record<string, number> = {}
  for (const [policy, arm] of arms) {
    metrics[`preemptions.${policy}`] = sum(arm.preemptions)
    metrics[`prefilledTokens.${policy}`] = sum(arm.prefilled)
    metrics[`tokensPerSecond.${policy}`] = median(arm.tokensPerSecond)
  }
  const [baseline, headroom] = [arms.get('static')!, arms.get('kv-headroom')!]
  return {
    metrics,
    fewerPreemptions: sum(baseline.preemptions) / Math.max(1, sum(headroom.preemptions)),
    speedUp: median(headroom.tokensPerSecond.map((rate, round) => rate / baseline.tokensPerSecond[round]!)),
  }
}

async function playRound(server: BenchServer, policy: Raced, arm: Arm): Promise<void> {
  const before = await server.metrics()
  const { rollouts, ms } = await arm.started.step()
  const after = await server.metrics()
  const prefilledOf = (m: typeof before) => m.promptTokens - m.cachedPromptTokens
  arm.preemptions.push(after.preemptions - before.preemptions)
  arm.prefilled.push(prefilledOf(after) - prefilledOf(before))
  const { tokensPerSecond } = figuresOf(rollouts.map(turnsOf), arm.started.plan, ms)
  arm.tokensPerSecond.push(tokensPerSecond)
  const [rate, preempted] = [tokensPerSecond.toFixed(1), arm.preemptions.at(-1)]
  process.stderr.write(`${policy}: ${rate} tokens/s, ${preempted} preemptions, ${(ms / 1000).toFixed(1)} s\n`)
}
