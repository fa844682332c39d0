/**
 * Runs the same training steps on two buses, which alternate, and compares their durations.
 *
 * Two whole runs of the quickstart exist side by side, each with its engine, trainer and renderer; while one makes a
 * step the other waits before its next. Traces fix every turn's length and every tool's delay, so both do the same
 * work: rollouts, selection, an optimizer step, new weights. A step lasts until its weights are published and the next
 * step's prompts are drawn.
 */
import { median } from '../report'
import { startTracedRun, type TracedRun } from './tracedRun'
import { traces } from './traces'

const groups = 8
const groupSize = 16
export const rolloutsPerStep = groups * groupSize
const steps = 14
/** Number of warm-up steps of each arm. They are not counted, because the JIT compiler still works on them. */
const warmUps = 2
const shape = { turns: [2, 3], newTokens: [16, 44], toolMs: [20, 60] } as const

export interface RacingBus {
  readonly name: string
  /** Address of the bus; `lmdb:` makes a new log in a temporary directory. */
  readonly bus: string
}

interface Arm {
  readonly name: string
  readonly run: TracedRun
  /** Seconds from the start of the arm until its first step could begin. */
  readonly startSeconds: number
  /** Lets the rollouts of the next step through the gate. */
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
  /**
   * Median of (second arm's time / first arm's time) over neighbouring steps, because the machine's other load changes
   * between steps.
   */
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
      // One step more than is counted, so that the last counted step ends like the others: with the next step's
      // prompts.
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
