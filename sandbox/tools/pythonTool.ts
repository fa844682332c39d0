/**
 * The Python tool that models learn to call: code with standard input; the last expression is echoed as IPython does.
 *
 * in   {code, input} from a model      out  the sandbox's result, its streams as text
 * Invariant: line numbers are those of the model's code, and output before an error is kept. The tool adds no words to
 * the result: status, exit code, signal and reason are the sandbox's.
 * Source: arXiv 2508.20722 §2.1 (the tool, its four outcomes); the form of errors is the released wrapper's.
 */
import { outOfMemory } from '../refusals'
import { retryLost } from '../retryLost'
import { isOutOfMemory, type RunRequest, type RunResult, type Sandbox } from '../sandbox'

/** Description of the tool for a chat template: name, description, JSON schema of the arguments. */
export const pythonTool = {
  name: 'execute_python_code_with_standard_io',
  description:
    'Executes Python code with the given standard input. Returns what the code printed and, as in a notebook, ' +
    'the value of its last expression; if it fails, the error with its line.',
  parameters: {
    type: 'object',
    properties: {
      code: { type: 'string', description: 'The Python code to execute.' },
      input: { type: 'string', description: 'What the code reads from standard input.' },
    },
    required: ['code', 'input'],
  },
} as const

export type PythonToolLimits = Pick<RunRequest, 'timeoutMs' | 'memoryMb' | 'maxProcesses' | 'maxOutputBytes'> & {
  /** Id of the call in the sandbox's results. */
  readonly id?: string
  readonly signal?: AbortSignal
}

/**
 * Result of the sandbox, with the first part of each stream as text; `stdoutBytes` and `stderrBytes` are the true
 * sizes.
 */
export interface PythonToolResult extends Omit<RunResult, 'stdout' | 'stderr'> {
  readonly stdout: string
  readonly stderr: string
}

/**
 * Runs one call of the tool.
 * @throws SandboxError as Sandbox.run, never because of the code; sandbox.out_of_memory if the machine had no memory
 * for it
 */
export async function runPythonTool(
  sandbox: Sandbox,
  call: { readonly code: string; readonly input: string },
  { id = 'tool', signal, ...limits }: PythonToolLimits = {},
): Promise<PythonToolResult> {
  const request = { id, code: call.code, mode: 'cell', stdin: call.input, ...limits } as const
  return textResult(await retryLost(() => sandbox.run(request, signal)))
}

/** Returns the result with its streams decoded. @throws SandboxError sandbox.out_of_memory, retriable */
export function textResult(result: RunResult): PythonToolResult {
  if (isOutOfMemory(result)) throw outOfMemory()
  return { ...result, stdout: decoder.decode(result.stdout), stderr: decoder.decode(result.stderr) }
}

// ignoreBOM is set, since a byte order mark printed by the code is part of its output.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
