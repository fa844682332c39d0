/**
 * The Python tool as the tool executor takes it: the model's arguments are checked here, the rest is the sandbox's.
 *
 * in   the arguments of a call, as the model wrote them        out  how it ended, with what it printed
 */

import type { Sandbox } from '../../sandbox/sandbox'
import { runPythonTool } from '../../sandbox/tools/pythonTool'
import type { Tool } from './toolPort'

/** `memoryMb`: of a call; the sandbox's own default where none is given. */
export function pythonToolIn(sandbox: Sandbox, memoryMb?: number): Tool {
  return async ({ code, input }, { timeoutMs }, signal) => {
    if (typeof code !== 'string' || (input !== undefined && typeof input !== 'string')) {
      const reason = `${typeof code !== 'string' ? 'code' : 'input'} must be a string`
      return { status: 'rejected', reason, exitCode: null, signal: null, stdout: '', stderr: '', wallMs: 0, cpuMs: 0 }
    }
    const limits = { timeoutMs, signal, ...(memoryMb === undefined ? {} : { memoryMb }) }
    const result = await runPythonTool(sandbox, { code, input: input ?? '' }, limits)
    return { ...result, signal: null, timeoutMs }
  }
}
