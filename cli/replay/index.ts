/** `troupe replay`: questions about a run, answered from its log. Reading never changes it. */
import type { Command } from 'commander'
import { registerLs } from './ls'
import { registerShow } from './show'

export function registerReplay(program: Command): void {
  const replay = program.command('replay').description('look at a run through its log')
  registerLs(replay)
  registerShow(replay)
}
