/**
 * Runs one call of a rollout in its environment: `submit` between two steps, or a tool, as the user of the step's agent.
 */
import type { ToolOutcome } from '../../kernels'
import type { PastCall } from '../../messages/facts'
import type { Environment } from '../drivers/driver'
import type { AllowedVariables } from '../tasks/variables'
import { runEnvironmentTool } from '../tools/runTool'
import { submitTool } from '../tools/schemas'
import { endStep, stepAfter } from './endStep'
import type { PreparedTask } from './prepareTask'

export interface RunCall {
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly timeoutMs: number
}

/** @param past the calls that have run in the environment before this one */
export async function runCall(
  prepared: PreparedTask,
  past: readonly PastCall[],
  environment: Environment,
  { tool, arguments: args, timeoutMs }: RunCall,
  allowed: AllowedVariables,
  signal?: AbortSignal,
): Promise<ToolOutcome> {
  if (tool === submitTool.name) return endStep(prepared, past, environment, allowed, timeoutMs, signal)
  const { user } = stepAfter(prepared.task, past).agent
  return runEnvironmentTool(environment, tool, args, {
    timeoutMs,
    servers: prepared.task.config.environment.mcp_servers,
    ...(user === undefined ? {} : { user }),
    ...(signal === undefined ? {} : { signal }),
  })
}
