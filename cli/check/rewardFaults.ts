/**
 * Checks the names of the rewards that the recipe and its tasks use, and the file of a Python reward: its interpreter
 * parses it, but runs no line of it.
 *
 * in   a recipe and its tasks        out  the faults
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { builtInRewards, type Recipe, type RecipeConfig } from '../../config'
import type { Task } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import { failedHow, policyDirectory, pythonPath } from '../../runtime/python'
import { didYouMean } from '../../runtime/settings/nearestName'
import { error, type Fault, faultOf } from './fault'

const pythonMs = 10_000

export function rewardNameFaults(
  { reward }: RecipeConfig,
  { rewards = {} }: Recipe,
  tasks: readonly Task[],
): readonly Fault[] {
  const known = [...new Set([...builtInRewards, ...Object.keys(rewards)])]
  const cure = `known rewards: ${known.join(', ')}; a recipe in TypeScript defines others in \`rewards\``
  const unknown = (place: string, name: string) =>
    known.includes(name)
      ? []
      : [error('config.unknown_reward', place, `unknown reward '${name}'${didYouMean(name, known)}`, cure)]
  const others = tasks.filter(task => task.reward !== '' && task.reward !== reward.name)
  const ofTasks = new Map(others.toReversed().map(task => [task.reward, task])) // for each reward, its first task
  return [
    ...unknown('reward.name', reward.name),
    ...Object.keys(reward.weights ?? {}).flatMap(name => unknown(`reward.weights.${name}`, name)),
    ...[...ofTasks].flatMap(([name, task]) => unknown(`task ${task.id}`, name)),
    ...[...ofTasks].flatMap(([name, task]) => unloaded(name, task, reward)),
  ]
}

/** Returns a fault if a task asks for the reward `python` or `weighted`, but `reward` lacks the field that it needs. */
function unloaded(name: string, task: Task, { file, module, weights }: RecipeConfig['reward']): readonly Fault[] {
  const lacks =
    name === 'python' ? file === undefined && module === undefined : name === 'weighted' && weights === undefined
  if (!lacks) return []
  const field = name === 'python' ? 'reward.file or reward.module' : 'reward.weights'
  const missing = name === 'python' ? 'neither reward.file nor reward.module is set' : `${field} is not set`
  return [
    error('config.unknown_reward', `task ${task.id}`, `asks for the reward '${name}', but ${missing}`, `set ${field}`),
  ]
}

/**
 * Checks the interpreter, and the syntax, imports and function of the reward's file. Imports in functions are not
 * checked.
 */
export async function pythonRewardFaults({ reward }: RecipeConfig): Promise<readonly Fault[]> {
  const { file, interpreter } = reward
  if (interpreter?.includes('/') && !existsSync(interpreter))
    return [
      error(
        'process.no_python',
        'reward.interpreter',
        `${interpreter} does not exist`,
        'give the path of a Python, or run `npx troupe setup environments` for that of the environments',
      ),
    ]
  if (file === undefined) return []
  const path = resolve(file)
  if (!existsSync(path))
    return [
      error('config.no_file', 'reward.file', `${path} does not exist`, 'give the file that holds the reward function'),
    ]
  try {
    const script = join(policyDirectory(), 'troupe_policy/functions/in_file.py')
    const { stdout } = await promisify(execFile)(interpreter ?? pythonPath(), [script, path, reward.function], {
      timeout: pythonMs,
    })
    const { fault, line } = JSON.parse(stdout) as { fault?: string; line?: number | null }
    if (fault === undefined) return []
    const place = line == null ? path : `${path}:${line}`
    return [
      error(
        'config.reward_not_loaded',
        place,
        fault,
        `correct the file: def ${reward.function}(answer, task) returns a number or {score, why}; docs/rewards.md`,
      ),
    ]
  } catch (thrown) {
    const fault = thrown instanceof TroupeError ? thrown : new Error(failedHow(thrown, pythonMs))
    return [faultOf(fault, 'reward.interpreter')]
  }
}
