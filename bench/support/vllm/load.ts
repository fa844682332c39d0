/**
 * A load of a few dozen rollouts for a vLLM server, and a run of Troupe that makes them.
 *
 * in   a server, groups, lengths, a policy        out  a traced run; its steps one by one, with their rollouts
 */

import type { VllmEngine } from '../../../backends/engines/vllm/vllm'
import type { PolicyName } from '../../../kernels'
import type { Journal } from '../../../runtime/journal/journal'
import { until } from '../../../tests/support/until'
import { type RecordedRollout, recordSteps } from '../recordedStep'
import { inOrder, spanOf } from '../rolloutRound'
import { startTracedRunOn, type TracedRun } from '../tracedRun'
import { type Trace, type TraceShape, traces } from '../traces'
import type { BenchServer } from './server'

export interface VllmLoad {
  readonly groups: number
  readonly groupSize: number
  readonly shape: TraceShape
  readonly promptWords: number
  readonly contextTokens: number
}

export interface StartedLoad {
  readonly run: TracedRun<VllmEngine>
  readonly plan: readonly Trace[]
  /**
   * Empties the server's prefix cache, releases the next step, and waits for its end. The rollouts are in the order of
   * the traces.
   */
  step(): Promise<{ readonly rollouts: readonly RecordedRollout[]; readonly ms: number }>
  close(): Promise<void>
}

export const planOf = ({ groups, groupSize, shape }: VllmLoad): readonly Trace[] => traces(groups * groupSize, shape, 1)

/**
 * Starts a run of Troupe that makes the load.
 * @param bus address of the bus; `lmdb:` makes a log that is deleted with the run
 */
export async function startLoad(
  server: BenchServer,
  load: VllmLoad,
  policy: PolicyName,
  steps: number,
  bus = 'lmdb:',
): Promise<StartedLoad> {
  const plan = planOf(load)
  const { groups, groupSize, promptWords, contextTokens } = load
  const run = await startTracedRunOn(
    {
      ...{ bus, traces: plan, learns: false, promptWords },
      set: [
        `model=${JSON.stringify({ from: 'directory', path: server.modelDirectory })}`,
        `scheduler.policy=${policy}`,
        `limits.contextTokens=${contextTokens}`,
        `limits.responseTokens=${contextTokens}`,
        `limits.turns=${Math.max(...plan.map(trace => trace.turns.length)) + 1}`,
        ...['rollout.deadlineMs=600000', 'rollout.turnTimeoutMs=600000'],
        `rollout.groupsPerStep=${groups}`,
        `rollout.groupSize=${groupSize}`,
        ...[`selection.keep=${groupSize}`, 'selection.minPositive=1', 'selection.minNegative=1'],
        `train.steps=${steps}`,
      ],
    },
    server.startEngine,
  )
  const recorded = await recordSteps(run.run)
  await weightsTaken(run.run.journal)
  let done = 0
  return {
    run,
    plan,
    async step() {
      const open = await run.nextDraw()
      await server.forgetPrefixes()
      open()
      const rollouts = inOrder(await recorded.step(++done, groups), groupSize)
      return { rollouts, ms: spanOf(rollouts) }
    },
    async close() {
      await recorded.close()
      await run.close()
    },
  }
}

/**
 * Waits until the engine has loaded its weights. A run's first turns wait for this; the time belongs to the start, not
 * to the load.
 */
const weightsTaken = (journal: Journal): Promise<void> =>
  until(
    async () => {
      const { oldest, next } = await journal.offsets('runs', 0)
      const facts = await journal.read('runs', 0, oldest, next - oldest)
      return facts.some(({ message }) => message.type === 'weights.applied')
    },
    120_000,
    50,
  )
