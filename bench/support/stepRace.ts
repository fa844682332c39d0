/**
 * The same training steps on two buses, which take turns: what the one costs over the other.
 *
 * Two whole runs of the quickstart live side by side, each with its engine, trainer and renderer; while one does a step
 * the other waits before its next. Traces fix every turn's length and every tool's delay, so both do the same work: rollouts,
 * selection, an optimizer step, new weights. A step lasts until its weights are published and the next one's prompts are drawn.
 */
import { median } from '../report'
import { startTracedRun, type TracedRun } from './tracedRun'
import { traces } from './traces'

const groups = 8
const groupSize = 16
export const rolloutsPerStep = groups * groupSize
const steps = 14
/** Steps of each arm that are not counted: they measure the compiler. */
const warmUps = 2
const shape = { turns: [2, 3], newTokens: [16, 44], toolMs: [20, 60] } as const

export interface RacingBus {
  readonly name: string
  /** An address, or `lmdb:` for one of its own. */
  readonly bus: string
}

interface Arm {
  readonly name: string
  readonly run: TracedRun
  /** Until the first step could begin. */
  readonly startSeconds: number
  /** Lets the rollouts of the next step through. */
  open: () => void
  readonly seconds: number[]
  readonly nodeCpuMs: number[]
}

interface ArmFigures {
  readonly startSeconds: number
  readonly stepSeconds: number
  readonly nodeCpuMs: number
}

export interface Race {
  readonly steps: number
  readonly first: ArmFigures
  readonly second: ArmFigures
  /** Median of the second's over the first's, of neighbours in time: what else the machine does changes from step to step. */
  readonly medianRatio: number
}

async function startArm({ name, bus }: RacingBus): Promise<Arm> {
  const started = performance.now()
  const run = await startTracedRun({
    bus,
    learns: true,
    traces: traces(rolloutsPerStep, shape, 1),
    set: [
      `rollout.groupsPerStep=${groups}`,
      `rollout.groupSize=${groupSize}`,
      // One more, so that the last step that counts ends as the others do: with the next one's prompts.
      `train.steps=${steps + 1}`,
      'coldStart.demonstrations=2000',
    ],
  })
  const open = await run.nextDraw()
  return { name, run, startSeconds: (performance.now() - started) / 1000, open, seconds: [], nodeCpuMs: [] }
}

async function step(arm: Arm): Promise<void> {
  const before = process.cpuUsage()
  const started = performance.now()
  arm.open()
  arm.open = await arm.run.nextDraw()
  arm.seconds.push((performance.now() - started) / 1000)
  const { user, system } = process.cpuUsage(before)
  arm.nodeCpuMs.push((user + system) / 1000)
}

export async function race(one: RacingBus, other: RacingBus): Promise<Race> {
  const first = await startArm(one)
  try {
    const second = await startArm(other)
    try {
      for (let k = 0; k < steps; k++) {
        for (const arm of k % 2 === 0 ? [first, second] : [second, first]) await step(arm)
        const said = [first, second].map(arm => `${arm.seconds.at(-1)!.toFixed(2)} s on ${arm.name}`)
        process.stderr.write(`step ${k + 1}: ${said.join(', ')}\n`)
      }
      const ratios = second.seconds.map((seconds, k) => seconds / first.seconds[k]!).slice(warmUps)
      return { steps: ratios.length, first: figuresOf(first), second: figuresOf(second), medianRatio: median(ratios) }
    } finally {
      await second.run.close()
    }
  } finally {
    await first.run.close()
  }
}

function figuresOf({ startSeconds, seconds, nodeCpuMs }: Arm): ArmFigures {
  const mean = (values: readonly number[]) => values.slice(warmUps).reduce((a, b) => a + b, 0) / (steps - warmUps)
  return { startSeconds, stepSeconds: mean(seconds), nodeCpuMs: mean(nodeCpuMs) }
}
