/**
 * Checks fields that do not fit each other: corrections of the policy loss, plans of GPUs and hosts, deadlines, sizes
 * that exceed the hardware, stages that never begin, warm-ups that never end, evaluation intervals beyond the last
 * step.
 *
 * in   a recipe        out  the faults
 * Invariant: it reads no file but the model's config.json, for the estimated durations.
 */
import { type RecipeConfig, startFaults } from '../../config'
import { unfitFaults, unfitHint } from '../../config/unfit'
import { error, type Fault, warning } from './fault'

export function scheduleFaults(config: RecipeConfig): readonly Fault[] {
  const { train, rollout, limits, reward } = config
  const faults: Fault[] = startFaults(config).map(([field, why]) =>
    error(
      'config.invalid',
      field,
      why,
      'docs/training.md lists the corrections and what each goes with, and the plans of the GPUs',
    ),
  )
  if (train.nodes > 1 && train.rendezvous === undefined)
    faults.push(
      error(
        'config.no_rendezvous',
        'train.rendezvous',
        `is missing although train.nodes is ${train.nodes}: the trainer's ranks on ${train.nodes} hosts have no address at which to meet`,
        "give an address of the learner's host: --set train.rendezvous=HOST:29400",
      ),
    )
  for (const { code, field, why } of unfitFaults(config)) faults.push(error(code, field, why, unfitHint))
  if (limits.toolTimeoutMs >= rollout.deadlineMs)
    faults.push(
      warning(
        'limits.toolTimeoutMs',
        `one call may take ${limits.toolTimeoutMs} ms, but a rollout has ${rollout.deadlineMs} ms (rollout.deadlineMs)`,
        'lower it, or raise rollout.deadlineMs',
      ),
    )
  if (rollout.turnTimeoutMs > rollout.deadlineMs)
    faults.push(
      warning(
        'rollout.turnTimeoutMs',
        `a lost turn is asked again only after ${rollout.turnTimeoutMs} ms, longer than a training group may take (rollout.deadlineMs ${rollout.deadlineMs}): the group is usually closed by then`,
        'set it below rollout.deadlineMs',
      ),
    )
  if (reward.timeoutMs > rollout.deadlineMs)
    faults.push(
      warning(
        'reward.timeoutMs',
        `a judgement may take ${reward.timeoutMs} ms, longer than a rollout (rollout.deadlineMs ${rollout.deadlineMs})`,
        'lower it, or raise rollout.deadlineMs',
      ),
    )
  return [...faults, ...stepFaults(config)]
}

function stepFaults({ train, stages, evaluation, limits }: RecipeConfig): readonly Fault[] {
  const faults: Fault[] = []
  const { steps } = train
  if (steps === 0) return faults
  if (train.warmupSteps >= steps)
    faults.push(
      warning(
        'train.warmupSteps',
        `the warm-up of ${train.warmupSteps} steps is not over when the run ends after ${steps} steps: the learning rate never reaches ${train.learningRate}`,
        'set it below train.steps',
      ),
    )
  if (evaluation.every >= steps)
    faults.push(
      warning(
        'evaluation.every',
        `${evaluation.every} is not below train.steps (${steps}): only the first and the last evaluation are made`,
        'lower it, or set 0',
      ),
    )
  let begun = 0
  for (const [at, { name, until }] of stages.entries()) {
    if (begun >= steps)
      faults.push(
        warning(
          `stages.${at}`,
          `the stage '${name}' never begins: the stages before it take all ${steps} steps (train.steps)`,
          'raise train.steps, or lower stages.N.until.steps',
        ),
      )
    begun += until?.metric === undefined ? (until?.steps ?? 0) : 0
  }
  if (limits.turns > limits.responseTokens)
    faults.push(
      warning(
        'limits.turns',
        `${limits.turns} turns cannot fit ${limits.responseTokens} tokens of response`,
        'raise limits.responseTokens, or lower limits.turns',
      ),
    )
  return faults
}
