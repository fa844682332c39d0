/**
 * Tasks from the instances of environment families: for training and for evaluation, apart.
 *
 * in   instances of both splits, by family       out  a task for every index of a split
 * Families take turns, so that every step and every evaluation has as many of each; an index past a family's end begins
 * it anew. Invariant: pure; no question of the evaluation is trained on, in whatever spacing or case.
 */
import type { Task } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import type { TaskSource } from '../../runtime/recipe'
import type { Instance } from './instances'

export interface EnvironmentTasksOptions {
  /** The package. */
  readonly source: string
  /** A system prompt before each question; without, the environment's own where it has one. */
  readonly system: string | undefined
  /** A score of at least this is 1, any other 0; without, the package's score is the reward. */
  readonly passAt: number | undefined
}

type ByFamily = ReadonlyMap<string, readonly Instance[]>

export function environmentTasks(train: ByFamily, evaluation: ByFamily, options: EnvironmentTasksOptions): TaskSource {
  const held = new Set([...evaluation.values()].flat().map(({ question }) => keyOf(question)))
  const dropped: Record<string, number> = {}
  const trained = [...train].map(([family, instances]) => {
    const apart = instances.filter(({ question }) => !held.has(keyOf(question)))
    if (apart.length < instances.length) dropped[`${family}: also in the evaluation`] = instances.length - apart.length
    return apart
  })
  const drawn = (families: readonly (readonly Instance[])[], split: string) => {
    const some = families.filter(family => family.length > 0)
    return (index: number): Task => {
      const family = some[index % some.length]!
      return taskOf(family[Math.floor(index / some.length) % family.length]!, split, options)
    }
  }
  return { train: drawn(trained, 'train'), evaluation: drawn([...evaluation.values()], 'eval'), dropped }
}

function taskOf(
  { family, index, question, system, entry }: Instance,
  split: string,
  options: EnvironmentTasksOptions,
): Task {
  const said = options.system ?? system
  return {
    id: taskId(`${options.source}/${family}/${split}/${index}`),
    messages: [
      ...(said === null ? [] : [{ role: 'system' as const, content: said }]),
      { role: 'user', content: question },
    ],
    truth: String(entry.answer ?? ''),
    reward: '',
    metadata: {
      ...{ package: options.source, family, entry },
      ...(options.passAt === undefined ? {} : { passAt: options.passAt }),
    },
  }
}

const keyOf = (question: string) => question.toLowerCase().replace(/\s+/g, ' ').trim()
