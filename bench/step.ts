/**
 * What a durable log costs a training step: the same steps on `lmdb:` and on `memory:`, which take turns.
 *
 * Two whole runs of the quickstart live side by side, each with its engine, trainer and renderer; while one does a step
 * the other waits before its next. Traces fix every turn's length and every tool's delay, so both do the same work: rollouts,
 * selection, an optimizer step, new weights. A step lasts until its weights are published and the next one's prompts are drawn.
 */
import { atMost, type BenchReport, describeMachine, median, printReport } from './report'
import { startTracedRun, type TracedRun } from './support/tracedRun'
import { traces } from './support/traces'

const groups = 8
const groupSize = 16
const steps = 14
/** Steps of each arm that are not counted: they measure the compiler. */
const warmUps = 2
const shape = { turns: [2, 3], newTokens: [16, 44], toolMs: [20, 60] } as const

interface Arm {
  readonly run: TracedRun
  /** Lets the rollouts of the next step through. */
  open: () => void
  readonly seconds: number[]
  readonly nodeCpuMs: number[]
}

async function startArm(bus: 'memory' | 'lmdb'): Promise<Arm> {
  const run = await startTracedRun({
    bus,
    learns: true,
    traces: traces(groups * groupSize, shape, 1),
    set: [
      `rollout.groupsPerStep=${groups}`,
      `rollout.groupSize=${groupSize}`,
      // One more, so that the last step that counts ends as the others do: with the next one's prompts.
      `train.steps=${steps + 1}`,
      'coldStart.demonstrations=2000',
    ],
  })
  return { run, open: await run.nextDraw(), seconds: [], nodeCpuMs: [] }
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

export async function bench(): Promise<BenchReport> {
  const memory = await startArm('memory')
  try {
    const lmdb = await startArm('lmdb')
    try {
      for (let k = 0; k < steps; k++) {
        for (const arm of k % 2 === 0 ? [memory, lmdb] : [lmdb, memory]) await step(arm)
        const [durable, volatile] = [lmdb, memory].map(arm => arm.seconds.at(-1)!.toFixed(2))
        process.stderr.write(`step ${k + 1}: ${durable} s on lmdb, ${volatile} s on memory\n`)
      }
      return reportOf(memory, lmdb)
    } finally {
      await lmdb.run.close()
    }
  } finally {
    await memory.run.close()
  }
}

function reportOf(memory: Arm, lmdb: Arm): BenchReport {
  const counted = (values: readonly number[]) => values.slice(warmUps)
  const mean = (values: readonly number[]) => counted(values).reduce((a, b) => a + b, 0) / (steps - warmUps)
  // Of neighbours in time: what else the machine does changes from one step to the next.
  const ratios = counted(lmdb.seconds.map((seconds, k) => seconds / memory.seconds[k]!))
  return {
    bench: 'step',
    machine: describeMachine(),
    metrics: {
      lmdbStepSeconds: mean(lmdb.seconds),
      memoryStepSeconds: mean(memory.seconds),
      lmdbNodeCpuMs: mean(lmdb.nodeCpuMs),
      memoryNodeCpuMs: mean(memory.nodeCpuMs),
      meanRatio: mean(lmdb.seconds) / mean(memory.seconds),
      steps: steps - warmUps,
      rolloutsPerStep: groups * groupSize,
    },
    budgets: [atMost('step on lmdb, times a step on memory', median(ratios), 1.05)],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
