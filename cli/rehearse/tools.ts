/**
 * Tools of a rehearsal: most calls only take simulated time; one in `realEvery` runs in the real sandbox.
 *
 * in   calls of the Python tool        out  their outcomes; how many calls were simulated and how many ran
 * A simulated call lasts as long as a call of the simulator's loads (kernels/simulator/workload.ts) on the rehearsal's
 * clock, and obeys its deadline. A real call lasts as long as the sandbox takes.
 * Invariant: the same code of the script (script.ts) fails in simulated and in real calls: a simulated call fails if
 * its code contains `raise `, as the script's failing code does.
 */

import { pythonToolIn } from '../../actors/tools/pythonTool'
import type { Tool } from '../../actors/tools/toolPort'
import { baseShape, pcg32, toolOutcome } from '../../kernels'
import { deriveSeed, type Effects } from '../../runtime/effects'
import type { Sandbox } from '../../sandbox/sandbox'
import { pythonTool } from '../../sandbox/tools/pythonTool'

/** One in this many calls, drawn at random, runs in the sandbox. */
const realEvery = 50

export interface RehearsalTools {
  readonly tools: ReadonlyMap<string, Tool>
  readonly calls: { simulated: number; real: number }
}

export function rehearsalTools(sandbox: Sandbox, after: NonNullable<Effects['after']>): RehearsalTools {
  const real = pythonToolIn(sandbox)
  const calls = { simulated: 0, real: 0 }
  const tool: Tool = async (args, limits, signal) => {
    const random = pcg32(deriveSeed('rehearsal/tool', limits.idempotencyKey ?? ''))
    if (random.below(realEvery) === 0) {
      calls.real++
      return real(args, limits, signal)
    }
    calls.simulated++
    const { toolMs, toolSpread } = baseShape
    const z = Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform())
    const takesMs = Math.round(toolMs * Math.exp(toolSpread * z - toolSpread ** 2 / 2))
    const { timeoutMs } = limits
    await pause(Math.min(takesMs, timeoutMs), after, signal)
    const times = { wallMs: Math.min(takesMs, timeoutMs), cpuMs: Math.min(takesMs, timeoutMs) }
    if (takesMs >= timeoutMs) return toolOutcome({ status: 'timeout', timeoutMs, ...times })
    const raises = typeof args.code === 'string' && args.code.includes('raise ')
    return raises
      ? toolOutcome({ status: 'error', exitCode: 1, stderr: 'ValueError: no solution (line 1)\n', ...times })
      : toolOutcome({ status: 'ok', exitCode: 0, stdout: '679\n', ...times })
  }
  return { tools: new Map([[pythonTool.name, tool]]), calls }
}

function pause(ms: number, after: NonNullable<Effects['after']>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = after(ms, () => {
      signal.removeEventListener('abort', abort)
      resolve()
    })
    const abort = () => {
      cancel()
      reject(signal.reason)
    }
    signal.addEventListener('abort', abort, { once: true })
  })
}
