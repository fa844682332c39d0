/**
 * Compares rollouts through Troupe with a bare asyncio client of the same vLLM server, round by round.
 *
 * in   a server with room for all        out  figures of each arm; the share of the bare client's tokens a second
 */
import { median } from '../../report'
import type { BareRollout } from '../bareRollouts'
import { figuresOf, type RoundFigures, recordingOf, type Turns, turnsOf } from '../rolloutRound'
import { bareRound } from './bareArm'
import { startLoad, type VllmLoad } from './load'
import type { BenchServer } from './server'

const load: VllmLoad = {
  ...{ groups: 4, groupSize: 4, promptWords: 20, contextTokens: 768 },
  shape: { turns: [2, 2], newTokens: [32, 64], toolMs: [20, 60] },
}
export const rolloutServer = { contextTokens: load.contextTokens, maxSequences: 16 }

/** Number of warm-up rounds, which are not counted: the JIT compiler and the server do first-time work in them. */
const warmUps = 1
const rounds = 6

export interface RolloutRace {
  readonly metrics: Readonly<Record<string, number>>
  readonly share: number
}

export async function rolloutRace(server: BenchServer): Promise<RolloutRace> {
  const troupe: RoundFigures[] = []
  const bare: RoundFigures[] = []
  const started = await startLoad(server, load, 'kv-headroom', rounds + warmUps)
  const { run, plan } = started
  let rollouts: readonly BareRollout[] = []
  const take = (arm: RoundFigures[], turns: Turns, ms: number) => arm.push(figuresOf(turns, plan, ms))
  const throughTroupe = async () => {
    const step = await started.step()
    rollouts = step.rollouts.map((rollout, k) => recordingOf(rollout, plan[k]!))
    take(troupe, step.rollouts.map(turnsOf), step.ms)
  }
  const withoutTroupe = async () => {
    await server.forgetPrefixes()
    const { turns, ms } = await bareRound(server, run, rollouts)
    take(bare, turns, ms)
  }
  try {
    for (let round = 1; round <= rounds + warmUps; round++) {
      // Troupe's first round yields the tokens of prompts and tool answers, which the bare client repeats; from then on
      // the arms alternate in going first.
      const arms = round % 2 === 1 ? [throughTroupe, withoutTroupe] : [withoutTroupe, throughTroupe]
      for (const arm of arms) await arm()
      const [through, without] = [troupe, bare].map(arm => arm.at(-1)!.tokensPerSecond.toFixed(1))
      process.stderr.write(`rollout round ${round}: ${through} tokens/s, without Troupe ${without}\n`)
    }
  } finally {
    await started.close()
  }
  const metrics: Record<string, number> = {}
  for (const [name, arm] of [
    ['troupe', troupe],
    ['bare', bare],
  ] as const) {
    for (const of of Object.keys(arm[0]!) as (keyof RoundFigures)[]) {
      metrics[`rollout.${name}.${of}`] = median(arm.slice(warmUps).map(round => round[of]))
    }
  }
  // Ratios are taken between neighbouring rounds, because the machine's other load changes between rounds.
  const ratios = troupe.map((round, k) => round.tokensPerSecond / bare[k]!.tokensPerSecond)
  return { metrics, share: median(ratios.slice(warmUps)) }
}
