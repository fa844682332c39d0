/**
 * Troupe's own suite of small tasks on files, which need only a shell and Python.
 *
 * in   the tasks as data        out  task directories in Harbor's format
 * Invariant: the directory is named after the tasks' digest, so that a run and its resume find the same files. The
 * oracle's solution of each task is rewarded, and doing nothing is not (tests/containers/agent/suite.test.ts).
 */
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { troupeHome } from '../../../runtime/home'
import { dataTasks } from './data'
import { pythonTasks } from './python'
import { shellTasks } from './shell'
import { type SuiteTask, writeTask } from './task'

export const suite: readonly SuiteTask[] = [...shellTasks, ...dataTasks, ...pythonTasks]

/** Writes all tasks below `root`; returns their directories. */
export const writeSuite = (root: string): readonly string[] => suite.map(task => writeTask(root, task))

/** Returns the suite's directory below Troupe's home; writes the tasks there if it does not exist yet. */
export const suiteDirectory = (): string => taskSetDirectory('suite', suite)

/** Writes tasks below Troupe's home, once for equal tasks; returns the directory that holds them. */
export function taskSetDirectory(name: string, tasks: readonly SuiteTask[]): string {
  const digest = createHash('sha256').update(JSON.stringify(tasks)).digest('hex').slice(0, 16)
  const directory = join(troupeHome(), 'tasks', `${name}-${digest}`)
  if (existsSync(directory)) return directory
  const beside = `${directory}.${process.pid}`
  mkdirSync(beside, { recursive: true })
  for (const task of tasks) writeTask(beside, task)
  try {
    renameSync(beside, directory)
  } catch (thrown) {
    rmSync(beside, { recursive: true })
    if (!existsSync(directory)) throw thrown // otherwise another process has written the tasks first
  }
  return directory
}
