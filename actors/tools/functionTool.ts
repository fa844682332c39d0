/**
 * Makes a tool of a recipe's own JavaScript function.
 *
 * in   arguments, as the model wrote them
 * out  the function's return value as text, or the reason why the call failed
 * Invariant: a call resolves within its deadline, or rejects when it is aborted, unless the function blocks the event
 * loop. Arguments that do not fit the schema never reach the function.
 */
import { z } from 'zod'
import type { ToolFunction } from '../../config'
import type { ToolSchema } from '../../config/toolSchema'
import { toolOutcome } from '../../kernels'
import { systemEffects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import type { Tool } from './toolPort'

/**
 * Makes a tool from a function. @throws TroupeError config.bad_tool_schema if zod cannot read the schema's parameters
 */
export function functionTool(schema: ToolSchema, run: ToolFunction): Tool {
  const faultOf = argumentChecker(schema)
  return async (args, { timeoutMs, trajectory = '', idempotencyKey = '' }, signal) => {
    const begun = systemEffects.elapsed()
    const ended = (known: Parameters<typeof toolOutcome>[0]) =>
      toolOutcome({ timeoutMs, ...known, wallMs: systemEffects.elapsed() - begun })
    const reason = faultOf(args)
    if (reason !== undefined) return ended({ status: 'rejected', reason })
    const late = AbortSignal.timeout(timeoutMs)
    const either = AbortSignal.any([signal, late])
    try {
      const given = (async () => run(args, { signal: either, timeoutMs, trajectory, idempotencyKey }))()
      return ended({ status: 'ok', exitCode: 0, stdout: textOf(await rejectOnAbort(given, either)) })
    } catch (thrown) {
      signal.throwIfAborted()
      if (late.aborted) return ended({ status: 'timeout' })
      const { name, message } = asError(thrown)
      return ended({ status: 'error', reason: 'the tool failed', stderr: `${name}: ${message}` })
    }
  }
}

/**
 * Makes a check of a call's arguments: it returns why they do not fit the schema, or undefined.
 * @throws TroupeError config.bad_tool_schema if zod cannot read the schema's parameters
 */
export function argumentChecker(schema: ToolSchema): (args: unknown) => string | undefined {
  const checked = checkerOf(schema)
  return args => {
    const parsed = checked.safeParse(args)
    if (parsed.success) return undefined
    return parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'arguments'}: ${message}`).join('; ')
  }
}

function checkerOf({ name, parameters }: ToolSchema): z.ZodType {
  try {
    return z.fromJSONSchema(parameters as Parameters<typeof z.fromJSONSchema>[0])
  } catch (cause) {
    throw new TroupeError('config.bad_tool_schema', {
      boundary: 'config',
      retriable: false,
      message: `cannot check the parameters of the tool '${name}': ${asError(cause).message}`,
      hint: 'write the parameters in the part of JSON Schema that zod reads (z.fromJSONSchema), or let the function check them itself',
      cause,
    })
  }
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  return value === undefined ? '' : (JSON.stringify(value) ?? String(value))
}
