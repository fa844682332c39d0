/**
 * The Python tool for the tool executor: checks the model's arguments; the sandbox runs the code.
 *
 * in   a call's arguments, as the model wrote them        out  how the call ended, with its output
 */

import { toolOutcome } from '../../kernels'
import type { Sandbox } from '../../sandbox/sandbox'
import { runPythonTool } from '../../sandbox/tools/pythonTool'
import type { Tool } from './toolPort'

/**
 * Makes the Python tool over a sandbox. `memoryMb`: memory limit of a call, in MiB; default: the sandbox's own limit.
 */
export function pythonToolIn(sandbox: Sandbox, memoryMb?: number): Tool {
  return async ({ code, input }, { timeoutMs }, signal) => {
    if (typeof code !== 'string' || (input !== undefined && typeof input !== 'string')) {
      const reason = `${typeof code !== 'string' ? 'code' : 'input'} must be a string`
      return toolOutcome({ status: 'rejected', reason })
    }
    const limits = { timeoutMs, signal, ...(memoryMb === undefined ? {} : { memoryMb }) }
    const result = await runPythonTool(sandbox, { code, input: input ?? '' }, limits)
    return { ...result, timeoutMs }
  }
}
