/**
 * Computes the metrics of a recorded run's steps and evaluations. `train --json` prints the same metrics, but without
 * the rollouts that ended after their step.
 *
 * in   a recorded run        out  a report for each completed step, and each evaluation
 */
import { fence } from '../../actors/ownership/fencing'
import type { EvaluationCompleted, Fact } from '../../messages/facts'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { type Progress, progress, type StepReport } from './progress'

/**
 * Returns the progress of a recorded run.
 * @throws TroupeError replay.run_empty when the log has no `run.started`; config.invalid when today's schema refuses
 * the run's recipe
 */
export async function runProgress(recorded: RecordedRun): Promise<Progress> {
  const { positiveAbove } = (await configOf(recorded)).selection
  const folded = progress({ positiveAbove })
  const counts = fence()
  // The topic `trajectories` comes first: the report of a step contains the rollouts that `progress` has taken before
  // the step's end.
  for (const topic of ['trajectories', 'runs', 'learner'] as const) {
    await recorded.scan(topic, entry => {
      if (counts(entry)) folded.take(entry.message as Fact)
    })
  }
  return folded
}

/** Merges steps and evaluations into one list; an evaluation after step n comes directly after that step. */
export function stepsAndEvaluations({ steps, evaluations }: Progress): readonly (StepReport | EvaluationCompleted)[] {
  const lines: (StepReport | EvaluationCompleted)[] = [...steps, ...evaluations]
  return lines.sort((a, b) => a.step - b.step || (a.type === 'step' ? -1 : 1))
}
