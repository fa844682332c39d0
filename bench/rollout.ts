/**
 * Compares rollouts through Troupe with the same engine driven directly: sampled tokens a second.
 *
 * One engine process serves both arms, which alternate round by round and make the same turns: prompts, lengths and
 * tool delays are the same, no tool runs. Troupe's arm is a whole run on a durable bus; the other is a loop over the
 * engine. A round lasts from the first turn's request to the last rollout's end. SmolLM2 is measured when its
 * directory exists.
 */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { smollm2Directory } from '../cli/setupCommand'
import { atLeast, type BenchReport, type Budget, describeMachine, median, printReport } from './report'
import { type BareRollout, bareRollouts } from './support/bareRollouts'
import { processTree } from './support/processTree'
import { quickstartLoad } from './support/quickstartLoad'
import { recordSteps } from './support/recordedStep'
import { figuresOf, inOrder, type RoundFigures, recordingOf, spanOf, type Turns, turnsOf } from './support/rolloutRound'
import { startTracedRun } from './support/tracedRun'
import { type TraceShape, traces } from './support/traces'

interface Setting {
  readonly name: string
  readonly bound: number
  readonly groups: number
  readonly groupSize: number
  readonly shape: TraceShape
  readonly set: readonly string[]
  /** Number of warm-up rounds. They are not counted, because the JIT compiler still works on them. */
  readonly warmUps: number
  /** Number of counted rounds of each arm. */
  readonly rounds: number
}

const quickstart: Setting = { name: 'quickstart', bound: 0.85, ...quickstartLoad, warmUps: 2, rounds: 6 }

const smollm2: Setting = {
  name: 'smollm2',
  bound: 0.95,
  groups: 4,
  groupSize: 4,
  shape: { turns: [2, 2], newTokens: [32, 64], toolMs: [20, 60] },
  set: [
    `model=${JSON.stringify({ from: 'directory', path: process.env.TROUPE_SMOLLM2 ?? resolve(smollm2Directory) })}`,
    'limits.contextTokens=768',
    'limits.responseTokens=640',
    'engine.maxSequences=16',
    'engine.kvTokens=16384',
    'selection.keep=4',
  ],
  warmUps: 1,
  rounds: 8,
}

interface Round extends RoundFigures {
  readonly nodeCpuMsPerTurn: number
  readonly engineCpuMsPerTurn: number
  /** CPU milliseconds per turn of all other processes: mainly the renderer, which tokenizes tool answers. */
  readonly otherCpuMsPerTurn: number
}

async function measure(setting: Setting): Promise<{ troupe: Round[]; bare: Round[] }> {
  const { groups, groupSize, rounds, warmUps } = setting
  const plan = traces(groups * groupSize, setting.shape, 1)
  const run = await startTracedRun({
    bus: 'lmdb:',
    learns: false,
    traces: plan,
    set: [
      ...setting.set,
      `rollout.groupsPerStep=${groups}`,
      `rollout.groupSize=${groupSize}`,
      `train.steps=${rounds + warmUps}`,
    ],
  })
  const recorded = await recordSteps(run.run)
  const troupe: Round[] = []
  const bare: Round[] = []
  let rollouts: readonly BareRollout[] = []
  async function timed(arm: Round[], act: () => Promise<{ turns: Turns; ms: number }>): Promise<void> {
    const before = cpuOf(run.engine.pid)
    const { turns, ms } = await act()
    const after = cpuOf(run.engine.pid)
    const each = (k: number) => (after[k]! - before[k]!) / turns.flat().length
    const cpu = { nodeCpuMsPerTurn: each(0), engineCpuMsPerTurn: each(1), otherCpuMsPerTurn: each(2) }
    arm.push({ ...figuresOf(turns, plan, ms), ...cpu })
  }
  const throughTroupe = (round: number) =>
    timed(troupe, async () => {
      const open = await run.nextDraw()
      open()
      const step = await recorded.step(round, groups)
      const ordered = inOrder(step, groupSize)
      rollouts = ordered.map((rollout, k) => recordingOf(rollout, plan[k]!))
      return { turns: ordered.map(turnsOf), ms: spanOf(ordered) }
    })
  const withoutTroupe = (round: number) =>
    timed(bare, async () => {
      const started = performance.now()
      const sampling = { ...run.config.rollout.sampling, stopTokens: [] }
      const turns = await bareRollouts(run.engine, rollouts, sampling, round)
      return { turns, ms: performance.now() - started }
    })
  try {
    for (let round = 1; round <= rounds + warmUps; round++) {
      // Troupe's first round yields the tokens of prompts and tool answers, which the bare arm repeats; from then on
      // the arms alternate in going first.
      const arms = round % 2 === 1 ? [throughTroupe, withoutTroupe] : [withoutTroupe, throughTroupe]
      for (const arm of arms) await arm(round)
      const [through, without] = [troupe, bare].map(rounds => Math.round(rounds.at(-1)!.tokensPerSecond))
      process.stderr.write(`${setting.name} round ${round}: ${through} tokens/s, without Troupe ${without}\n`)
    }
    return { troupe: troupe.slice(warmUps), bare: bare.slice(warmUps) }
  } finally {
    await recorded.close()
    await run.close()
  }
}

/** CPU milliseconds so far of this process, of the engine, and of all other descendants of this process. */
function cpuOf(enginePid: number): readonly number[] {
  const { user, system } = process.cpuUsage()
  const [, ...rest] = processTree(process.pid)
  const engineMs = rest.find(({ pid }) => pid === enginePid)?.cpuMs ?? 0
  return [(user + system) / 1000, engineMs, rest.reduce((sum, { cpuMs }) => sum + cpuMs, 0) - engineMs]
}

const middle = (rounds: readonly Round[], of: keyof Round) => median(rounds.map(round => round[of]))

export async function bench(): Promise<BenchReport> {
  const settings = [quickstart]
  const directory = process.env.TROUPE_SMOLLM2 ?? smollm2Directory
  if (existsSync(join(directory, 'config.json'))) settings.push(smollm2)
  else process.stderr.write(`smollm2 is not measured: ${directory} does not exist; run npx troupe setup smollm2\n`)
  const metrics: Record<string, number> = {}
  const budgets: Budget[] = []
  for (const setting of settings) {
    const { troupe, bare } = await measure(setting)
    for (const [arm, rounds] of [
      ['troupe', troupe],
      ['bare', bare],
    ] as const) {
      for (const of of Object.keys(rounds[0]!) as (keyof Round)[]) {
        metrics[`${setting.name}.${arm}.${of}`] = middle(rounds, of)
      }
    }
    // Ratios are taken between neighbouring rounds, because the machine's other load changes between rounds.
    const ratio = median(troupe.map((round, k) => round.tokensPerSecond / bare[k]!.tokensPerSecond))
    budgets.push(atLeast(`${setting.name}: tokens/s, share of the bare engine`, ratio, setting.bound))
  }
  return { bench: 'rollout', machine: describeMachine(), metrics, budgets }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
