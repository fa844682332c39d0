/**
 * Reads the result of a chaos run from its log, and lists what is wrong with it.
 *
 * in   the run's journal, its faults
 * out  audit, evaluations, rewards; a list of errors, empty for a run without an error
 */
import type { EvaluationCompleted } from '../../../messages/facts'
import type { Journal } from '../../../runtime/journal/journal'
import { type Audit, audit, everything } from '../audit'
import type { Finished } from '../cli'
import type { LeftOut } from './fault'
import type { FaultCounts } from './schedule'

export interface ChaosOutcome {
  /** Number of injected faults by name: `kill learner`, `stop engine`, … */
  readonly faults: FaultCounts
  readonly leftOut: readonly LeftOut[]
  readonly audit: Audit
  readonly outcome: string
  /** Results of the run's evaluations, in the log's order. */
  readonly evaluations: readonly EvaluationCompleted[]
  /** Number of `learner.claimed` facts: how often a process became the run's learner. */
  readonly learners: number
  /** Number of rollouts whose grading failed (`reward.failed`). */
  readonly unrewarded: number
  /** What `replay verify` printed, and its exit code. */
  readonly verified: Pick<Finished, 'code' | 'stdout'>
}

export async function outcomeOf(
  journal: Journal,
  given: Pick<ChaosOutcome, 'faults' | 'leftOut' | 'verified'>,
): Promise<ChaosOutcome> {
  const runs = (await everything(journal, 'runs', 0)).map(({ message }) => message)
  const learned = await everything(journal, 'learner', 0)
  let unrewarded = 0
  for (let partition = 0; partition < (await journal.partitionsOf('trajectories')); partition++) {
    const all = await everything(journal, 'trajectories', partition)
    unrewarded += all.filter(({ message }) => message.type === 'reward.failed').length
  }
  const ends = runs.flatMap(message => (message.type === 'run.finished' ? [message.outcome] : []))
  return {
    ...given,
    audit: await audit(journal),
    outcome: ends.at(-1) ?? 'none',
    evaluations: runs.flatMap(message => (message.type === 'evaluation.completed' ? [message] : [])),
    learners: learned.filter(({ message }) => message.type === 'learner.claimed').length,
    unrewarded,
  }
}

export const faultsIn = ({ faults }: Pick<ChaosOutcome, 'faults'>): number =>
  [...faults.values()].reduce((a, b) => a + b, 0)

/**
 * Lists the errors of a chaos run.
 * @param undisturbed result of a run without faults; the last pass@1 of both must agree within three standard errors.
 * undefined: scores are not compared
 */
export function wrongIn(result: ChaosOutcome, undisturbed?: ChaosOutcome): readonly string[] {
  const wrong: string[] = []
  const { outcome, unrewarded, verified } = result
  const { turnsTwice, lost, failed, failedBecause, steps, started, deadLetters } = result.audit
  if (outcome !== 'done') wrong.push(`it ended as ${outcome}`)
  if (turnsTwice.length > 0) wrong.push(`turns that counted twice: ${turnsTwice.join(', ')}`)
  if (lost.length > 0) wrong.push(`lost: ${lost.join(', ')}`)
  if (failed > 0) wrong.push(`${failed} failed rollouts: ${failedBecause.join('; ')}`)
  if (unrewarded > 0) wrong.push(`${unrewarded} rollouts without a reward`)
  const inOrder = steps.map((_, at) => at + 1).join()
  if (steps.join() !== inOrder) wrong.push(`steps ${steps.join()}`)
  if (started.join() !== inOrder) wrong.push(`started ${started.join()}`)
  wrong.push(...result.audit.violations.map(({ kind, message }) => `${kind}: ${message}`))
  if (deadLetters > 0) wrong.push(`${deadLetters} dead letters`)
  if (verified.code !== 0 || !/^sound$/m.test(verified.stdout)) wrong.push(`replay verify: ${verified.stdout}`)
  const [last, aim] = [result.evaluations.at(-1), undisturbed?.evaluations.at(-1)]
  if (undisturbed !== undefined && last === undefined) wrong.push('no evaluation')
  if (last !== undefined && aim !== undefined) {
    const noise = 3 * Math.hypot(last.standardError ?? 0, aim.standardError ?? 0)
    if (Math.abs(last.passAt1 - aim.passAt1) > noise) wrong.push(`pass@1 ${last.passAt1}, undisturbed ${aim.passAt1}`)
  }
  return wrong
}
