/**
 * The tool executor's port to the tools: runs a requested call and records its result.
 *
 * in   tool.execute        out  tool.completed
 * Invariant: the recorded status and signal come from the tool's outcome, never from the text for the model, which is
 * made from that outcome.
 */
import { type ToolOutcome, toolResultText, toolStatusOf, truncateMiddle, unknownToolText } from '../../kernels'
import type { ExecuteTool } from '../../messages/commands'
import type { EnvironmentAt, ToolStatus } from '../../messages/facts'
import type { ExecutorId, RunId, TrajectoryId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Port } from '../../runtime/host/host'
import { nothingRan } from '../rollouts/nextActions'

export type { ToolOutcome }

/** Limits and identity of a call, besides its arguments. */
interface ToolLimits {
  readonly timeoutMs: number
  /** Trajectory that makes the call; a tool with state, such as the notebook, keeps one state for each trajectory. */
  readonly trajectory?: TrajectoryId
  /**
   * Key that is the same for every attempt of a call, and different for every other call: with it, a tool that changes
   * the outside world can do so once per call.
   */
  readonly idempotencyKey?: string
  /** Code of the trajectory's earlier notebook cells, oldest first; only for calls of the notebook tool. */
  readonly cells?: readonly string[]
  /** Files that the call finds; only for tools that act in an environment. */
  readonly environment?: EnvironmentAt
}

/**
 * Runs one tool. Resolves with an outcome whether the call succeeds or fails; rejects only when the call is aborted
 * (`signal`) or the tool itself is broken.
 */
export type Tool = (
  args: Readonly<Record<string, unknown>>,
  limits: ToolLimits,
  signal: AbortSignal,
) => Promise<ToolOutcome>

export const toolKey = (ask: ExecuteTool): string => `${ask.trajectory}#${ask.turn}#${ask.call}#${ask.attempt}`

/**
 * Runs each requested call with the tool of that name; a call of an unknown tool gets the status `unknown-tool`. `run`
 * becomes part of the idempotency keys, so keys of two runs differ.
 */
export function toolPort(
  tools: ReadonlyMap<string, Tool>,
  executor: ExecutorId,
  fx: Effects,
  run?: RunId,
): Port<ExecuteTool> {
  return async (ask, signal) => {
    const { trajectory, turn, call, attempt, tool: name } = ask
    const tool = tools.get(name)
    const cells = ask.cells === undefined ? {} : { cells: ask.cells }
    const idempotencyKey = `${run === undefined ? '' : `${run}/`}${trajectory}#${turn}#${call}`
    const environment = ask.environment === undefined ? {} : { environment: ask.environment }
    const limits = { timeoutMs: ask.timeoutMs, trajectory, idempotencyKey, ...cells, ...environment }
    const outcome = await tool?.(ask.arguments, limits, signal)
    const { stdout, stderr, exitCode, wallMs, cpuMs } = outcome ?? nothingRan
    const status: ToolStatus = outcome === undefined ? 'unknown-tool' : toolStatusOf(outcome.status)
    const whole = outcome === undefined ? unknownToolText(name, [...tools.keys()]) : toolResultText(outcome)
    const text = truncateMiddle(whole, ask.responseChars)
    const place = { trajectory, turn, call, attempt, tool: name, executor }
    const killed = outcome?.status === 'killed' && outcome.signal !== null ? { signal: outcome.signal } : {}
    const files = outcome?.files === undefined ? {} : { files: outcome.files }
    const step = outcome?.step === undefined ? {} : { step: outcome.step }
    const ending = { status, text, stdout, stderr, exitCode, ...killed, wallMs, cpuMs, ...files, ...step }
    return { facts: [{ type: 'tool.completed', at: fx.now(), ...place, ...ending }], commands: [] }
  }
}
