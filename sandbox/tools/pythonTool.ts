/**
 * The Python tool that models learn to call: code with standard input; the last expression is echoed as IPython does.
 *
 * in   {code, input} from a model      out  status and output of the run
 * Invariant: line numbers are those of the model's code, and output before an error is kept.
 * Source: arXiv 2508.20722 §2.1 (the tool, its four outcomes); the form of errors is the released wrapper's.
 */
import type { RunRequest, RunResult, Sandbox } from '../sandbox'

/** The tool's description for a chat template: name, description, JSON schema of the arguments. */
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
  /** Name of the call, in the sandbox's results. */
  readonly id?: string
  readonly signal?: AbortSignal
}

export interface PythonToolResult {
  readonly status: 'ok' | 'error' | 'timeout'
  /** Captured output as text; the true sizes are in `stdoutBytes` and `stderrBytes`. */
  readonly stdout: string
  readonly stderr: string
  readonly stdoutBytes: number
  readonly stderrBytes: number
  readonly exitCode: number | null
  readonly wallMs: number
  readonly cpuMs: number
}

/**
 * Runs one call of the tool.
 * @throws SandboxError as Sandbox.run, never because of the code
 */
export async function runPythonTool(
  sandbox: Sandbox,
  call: { readonly code: string; readonly input: string },
  { id = 'tool', signal, ...limits }: PythonToolLimits = {},
): Promise<PythonToolResult> {
  return toolResultOf(await sandbox.run({ id, code: call.code, mode: 'cell', stdin: call.input, ...limits }, signal))
}

/** Converts a run's result to the tool's. A killed or rejected call becomes an error that says so. */
export function toolResultOf(result: RunResult): PythonToolResult {
  const { stdoutBytes, stderrBytes, exitCode, wallMs, cpuMs } = result
  const stdout = text(result.stdout)
  const stderr = text(result.stderr)
  const rest = { stdout, stdoutBytes, exitCode, wallMs, cpuMs }
  switch (result.status) {
    case 'ok':
    case 'error':
    case 'timeout':
      return { status: result.status, stderr, stderrBytes, ...rest }
    case 'killed':
      return { status: 'error', stderr: withLine(stderr, `Killed by ${result.signal}`), stderrBytes, ...rest }
    case 'rejected':
      return { status: 'error', stderr: withLine(stderr, `Rejected: ${result.reason}`), stderrBytes, ...rest }
  }
}

// ignoreBOM: a byte order mark printed by the code is part of its output.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
const text = (bytes: Uint8Array) => decoder.decode(bytes)

function withLine(stderr: string, line: string): string {
  return stderr === '' || stderr.endsWith('\n') ? `${stderr}${line}\n` : `${stderr}\n${line}\n`
}
