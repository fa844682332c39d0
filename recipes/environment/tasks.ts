/**
 * Turns the instances of environment families into tasks, with training and evaluation kept apart.
 *
 * in   instances of both splits, by family       out  a task for every index of a split
 * Families take turns, so that a step or an evaluation has about equally many tasks of each. An index past a family's
 * last instance starts again at its first. Invariant: pure; no question of the evaluation is trained on, in any spacing
 * or case; every instance has an id of its own.
 */

import type { TaskSource } from '../../config'
import type { Task } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import { TroupeError } from '../../runtime/errors'
import type { Instance } from './instances'

export interface EnvironmentTasksOptions {
  /** Name of the environment package. */
  readonly source: string
  /** System message before each question; undefined: the environment's own, if it has one. */
  readonly system: string | undefined
  /** Score from which on the reward is 1; below it the reward is 0. Undefined: the package's score is the reward. */
  readonly passAt: number | undefined
}

/** Instances of each family, by the family's position in the request. */
type ByFamily = readonly (readonly Instance[])[]

/**
 * Makes a task source; `train` or `evaluation` is empty if no task of that split is needed.
 * @throws TroupeError config.bad_environment for a family of which no instance is left to train on
 */
export function environmentTasks(train: ByFamily, evaluation: ByFamily, options: EnvironmentTasksOptions): TaskSource {
  const held = new Set(evaluation.flat().map(({ question }) => keyOf(question)))
  const dropped: Record<string, number> = {}
  const trained = train.map(instances => {
    const apart = instances.filter(({ question }) => !held.has(keyOf(question)))
    const { family } = instances[0]!
    if (apart.length === 0) throw nothingLeft(family, instances.length, options)
    if (apart.length < instances.length) {
      const why = `${family}: also in the evaluation`
      dropped[why] = (dropped[why] ?? 0) + instances.length - apart.length
    }
    return apart
  })
  return {
    train: drawn(trained, 'train', options),
    evaluation: drawn(evaluation, 'eval', options),
    dropped,
    // Number of tasks in which every instance occurs at least once.
    size: trained.length * Math.max(0, ...trained.map(({ length }) => length)),
  }
}

function drawn(families: ByFamily, split: string, options: EnvironmentTasksOptions): (index: number) => Task {
  const names = families.map(([first]) => first!.family)
  const isTwice = names.map((name, at) => names.indexOf(name) !== at || names.lastIndexOf(name) !== at)
  return index => {
    const position = index % families.length
    const family = families[position]!
    const instance = family[Math.floor(index / families.length) % family.length]!
    return taskOf(instance, split, isTwice[position] ? `${position}.${instance.index}` : `${instance.index}`, options)
  }
}

function taskOf(
  { family, question, system, entry }: Instance,
  split: string,
  which: string,
  options: EnvironmentTasksOptions,
): Task {
  const said = options.system ?? system
  return {
    id: taskId(`${options.source}/${family}/${split}/${which}`),
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

const nothingLeft = (family: string, count: number, { source }: EnvironmentTasksOptions) =>
  new TroupeError('config.bad_environment', {
    boundary: 'config',
    retriable: false,
    message: `${source}: ${family}: no instance is left to train on: all ${count} are also in the evaluation`,
    hint: 'raise data.instances, lower evaluation.problems, or give the family options that make more questions',
  })
