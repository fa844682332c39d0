/**
 * `troupe tasks`: Harbor task directories. `check` prints what tasks need, and what of it the driver does not support;
 * `run` (run.ts) runs them with their oracle solution; `image` (image.ts) unpacks an image for the driver `oci`;
 * `suite` (suite.ts) writes Troupe's own tasks.
 */
import type { Command } from 'commander'
import { registerCheck } from './check'
import { registerImage } from './image'
import { registerRun } from './run'
import { registerSuite } from './suite'

export function registerTasks(program: Command): void {
  const tasks = program.command('tasks').description("Harbor's task directories: what they need, and running them")
  registerCheck(tasks)
  registerRun(tasks)
  registerImage(tasks)
  registerSuite(tasks)
}
