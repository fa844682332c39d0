/**
 * Demonstrations of the format of calls: a task's oracle solution, typed into a shell paragraph by paragraph.
 *
 * in   tasks with solution/solve.sh        out  conversations, with what the tools really answered
 * Invariant: every call except the last `submit` runs in the task's environment, after the calls before it. A task is
 * left out if it has no solution or if one of the solution's paragraphs fails.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type EnvironmentSettings, environmentSettings } from '../../config'
import { bashTool, RolloutEnvironments, submitTool } from '../../environments'
import { deadlineOf } from '../../environments/tools/schemas'
import { printToolCall, toolResultText } from '../../kernels'
import type { ChatMessage, PastCall } from '../../messages/facts'
import { systemEffects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import { passedOn } from '../../runtime/secrets/credentials'
import type { TerminalTask } from './tasks'

const timeoutMs = 60_000
/** Number of tasks whose solutions run at once. */
const atOnce = 4

/**
 * Returns `count` conversations from the solutions of the first `count` tasks; they repeat if fewer solutions run.
 * @throws TroupeError task.none if no solution runs
 */
export async function terminalDemonstrations(
  tasks: readonly TerminalTask[],
  count: number,
  given: EnvironmentSettings | undefined,
): Promise<readonly (readonly ChatMessage[])[]> {
  const run = `demonstrations.${systemEffects.unique()}`
  const { snapshotMb, env } = environmentSettings(given)
  const environments = new RolloutEnvironments({
    ...{ run, epoch: 0, fx: systemEffects, live: atOnce, idleMs: timeoutMs },
    ...{ snapshotMb, allowed: passedOn(env) },
  })
  const wanted = tasks.slice(0, count)
  const found: (readonly ChatMessage[] | undefined)[] = []
  let next = 0
  const work = async () => {
    for (let at = next++; at < wanted.length; at = next++) found[at] = await demonstration(wanted[at]!, environments)
  }
  try {
    await Promise.all(Array.from({ length: atOnce }, work))
  } finally {
    await environments.close()
  }
  const made = found.filter(messages => messages !== undefined)
  if (made.length === 0)
    throw new TroupeError('task.none', {
      boundary: 'config',
      retriable: false,
      message: `none of the first ${wanted.length} tasks to train on has a solution/solve.sh whose commands all succeed, so there is nothing to demonstrate`,
      hint: 'mend the solutions, raise coldStart.demonstrations to try more tasks, or set coldStart to null for a model that can call tools already',
    })
  return Array.from({ length: count }, (_, index) => made[index % made.length]!)
}

async function demonstration(
  { harbor, environment: task, messages }: TerminalTask,
  environments: RolloutEnvironments,
): Promise<readonly ChatMessage[] | undefined> {
  const calls: PastCall[] = []
  const said: ChatMessage[] = []
  const add = (tool: string, args: Readonly<Record<string, unknown>>, response: string) =>
    said.push({ role: 'assistant', content: printToolCall(tool, args) }, { role: 'tool', content: response })
  const run = async (tool: string, args: Readonly<Record<string, unknown>>) => {
    const call = { tool, arguments: args }
    const outcome = await environments.call(
      harbor.name,
      { task, calls, timeoutMs },
      { ...call, timeoutMs: deadlineOf(task, tool, timeoutMs) },
    )
    const { step, files } = outcome
    if (outcome.status !== 'ok' || step?.over === true) return false
    add(tool, args, toolResultText(outcome))
    calls.push({ ...call, snapshot: files?.snapshot ?? null, ...(step === undefined ? {} : { step }) })
    return true
  }
  for (const [at, { solution }] of harbor.steps.entries()) {
    if (solution === undefined) return undefined
    // A step's first call follows the `submit` of the step before it, whose answer is the step's instruction.
    if (at > 0 && !(await run(submitTool.name, {}))) return undefined
    for (const command of paragraphs(readFileSync(join(solution, 'solve.sh'), 'utf8')))
      if (!(await run(bashTool.name, { command }))) return undefined
  }
  // The rollout ends with this call: its response is never shown to the model.
  return [...messages, ...said, { role: 'assistant', content: printToolCall(submitTool.name, {}) }]
}

/** Splits a script at empty lines, without the lines that begin with `#` or `set -`. A here-document stays whole. */
export function paragraphs(script: string): readonly string[] {
  const found: string[][] = [[]]
  let until: string | undefined
  for (const line of script.split('\n')) {
    if (until !== undefined) {
      found.at(-1)!.push(line)
      if (line === until) until = undefined
      continue
    }
    if (line.trim() === '') found.push([])
    else if (!line.startsWith('#') && !/^set -/.test(line)) found.at(-1)!.push(line)
    until = /<<-?\s*['"]?(\w+)/.exec(line)?.[1]
  }
  return found.map(lines => lines.join('\n')).filter(text => text !== '')
}
