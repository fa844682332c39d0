/** `troupe replay`: questions about a run, answered from its log. Reading never changes it. */
import type { Command } from 'commander'
import { registerFollow } from './follow'
import { registerLs } from './ls'
import { registerRun } from './run'
import { registerShow } from './show'
import { registerVerify } from './verify'

export function registerReplay(program: Command): void {
  const replay = program.command('replay').description('look at a run through its log')
  registerFollow(replay)
  registerLs(replay)
  registerRun(replay)
  registerShow(replay)
  registerVerify(replay)
}
