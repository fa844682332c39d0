/**
 * Checks the recipe's data: makes its tasks, and says which rows of its files cannot be used.
 *
 * in   a recipe        out  the faults; the first tasks for training and for evaluation, at most `most` of each
 * Files of problems are read whole. If another program makes the tasks, or the recipe's function `tasks` takes longer
 * than `tasksMs`, no tasks are returned; `said` then gives the reason.
 */
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Recipe, RecipeConfig, TaskSource } from '../../config'
import type { Task } from '../../messages/facts'
import { problemsData, problemsFaults } from '../../recipes/problems'
import { type Fault, placed, warning } from './fault'

const tasksMs = 1500
/** Upper bound on the tasks of each split that are checked. */
const most = 512

export interface CheckedData {
  readonly faults: readonly Fault[]
  readonly train: readonly Task[]
  readonly evaluation: readonly Task[]
  /** Description of what was checked, such as `10 tasks`. */
  readonly said: string
}

export async function dataFaults(config: RecipeConfig, recipe: Recipe): Promise<CheckedData> {
  const none = { train: [], evaluation: [] }
  if (recipe.hasSlowTasks) return { faults: [], ...none, said: 'tasks not made (another program makes them)' }
  const faults: Fault[] = []
  if (recipe.data === problemsData) {
    const { errors, skipped } = await problemsFaults(recipe, config)
    faults.push(...errors.map(thrown => placed(thrown, 'data')))
    for (const { file, line, reason, rows } of skipped)
      faults.push(
        warning(
          `${resolve(file)}:${line}`,
          `${reason}; this row is left out${rows === 1 ? '' : `, and ${rows - 1} others for this or another reason`}`,
          'correct the row: {"problem": …, "answer": …}',
        ),
      )
    if (errors.length > 0) return { faults, ...none, said: 'no tasks' }
    faults.push(...sharedFiles(config))
  }
  try {
    const source = await Promise.race([recipe.tasks(config), sleep(tasksMs, undefined, { ref: false })])
    if (source === undefined) return { faults, ...none, said: `tasks not made within ${tasksMs} ms` }
    return {
      faults,
      ...sampled(source, config),
      said: source.size === undefined ? 'tasks without end' : `${source.size} tasks`,
    }
  } catch (thrown) {
    return { faults: [...faults, placed(thrown, 'data')], ...none, said: 'no tasks' }
  }
}

function sharedFiles({ data, evaluation }: RecipeConfig): readonly Fault[] {
  const { file, evaluationFile } = data as { file?: string; evaluationFile?: string }
  if (
    evaluation.problems === 0 ||
    file === undefined ||
    evaluationFile === undefined ||
    resolve(file) !== resolve(evaluationFile)
  )
    return []
  return [
    warning(
      'data.evaluationFile',
      'is also the training file (data.file), so the evaluation says nothing about new problems',
      'give problems that are not in data.file',
    ),
  ]
}

function sampled(source: TaskSource, config: RecipeConfig): Pick<CheckedData, 'train' | 'evaluation'> {
  const trains = config.train.steps > 0
  const count = (size: number) => Math.max(0, Math.min(size, most))
  return {
    train: trains ? Array.from({ length: count(source.size ?? most) }, (_, at) => source.train(at)) : [],
    evaluation: Array.from({ length: count(config.evaluation.problems) }, (_, at) => source.evaluation(at)),
  }
}
