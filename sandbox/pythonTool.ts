/**
 * The tool that the models learn to call: Python with standard input, its last expression echoed as IPython does.
 *
 * in   {code, input} from a model      out  how it ended, with what it printed
 * Invariant: line numbers are those of the model's code, and what it printed before an error is kept.
 * Source: arXiv 2508.20722 §2.1 (the tool, its four outcomes); the form of errors is the released wrapper's.
 */
import type { RunRequest, Sandbox } from './sandbox'

/** What a chat template is given: name, description, JSON schema of the arguments. */
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
  /** Of the call, in the sandbox's results. */
  readonly id?: string
  readonly signal?: AbortSignal
}

export interface PythonToolResult {
  readonly status: 'ok' | 'error' | 'timeout'
  /** Heads of the streams as text; the true sizes are in `stdoutBytes` and `stderrBytes`. */
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
 * @throws SandboxError as Sandbox.run does: never because of what the code did
 */
export async function runPythonTool(
  sandbox: Sandbox,
  call: { readonly code: string; readonly input: string },
  { id = 'tool', signal, ...limits }: PythonToolLimits = {},
): Promise<PythonToolResult> {
  const result = await sandbox.run({ id, code: wrapped(call.code), stdin: call.input, ...limits }, signal)
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

// ignoreBOM: a byte order mark that the code printed is part of its output.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
const text = (bytes: Uint8Array) => decoder.decode(bytes)

function withLine(stderr: string, line: string): string {
  return stderr === '' || stderr.endsWith('\n') ? `${stderr}${line}\n` : `${stderr}\n${line}\n`
}

/**
 * The program that runs the model's code. It is a function, so that nothing of it is among the code's names, and it
 * takes the syntax tree apart with the built-in `_ast`: importing `ast` would cost as much as a short call.
 */
const WRAPPER = `
def run_cell(source):
    import _ast, sys
    cell = type(sys)('__main__')
    cell.__builtins__ = __builtins__
    sys.modules['__main__'] = cell
    try:
        tree = compile(source, '<cell>', 'exec', _ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and type(tree.body[-1]) is _ast.Expr:
            last = _ast.Expression(tree.body.pop().value)
        code = compile(tree, '<cell>', 'exec', 0, True)
        echo = last and compile(last, '<cell>', 'eval', 0, True)
        exec(code, cell.__dict__)
        if echo:
            value = eval(echo, cell.__dict__)
            if value is not None:
                print(repr(value))
    except SystemExit:
        raise
    except BaseException as error:
        line = getattr(error, 'lineno', None) if isinstance(error, SyntaxError) else None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == '<cell>':
                line = trace.tb_lineno
            trace = trace.tb_next
        try:
            message = error.msg if isinstance(error, SyntaxError) else str(error)
        except BaseException:
            message = ''
        where = '' if line is None else ' at line %d' % line
        lines = source.splitlines()
        shown = '\\n  ' + lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ''
        report = '%s%s%s%s\\n' % (type(error).__name__, where, ': ' + message if message else '', shown)
        try:
            sys.stdout.flush()
        except BaseException:
            pass
        sys.stderr.write(report)
        sys.exit(1)

`

function wrapped(code: string): string {
  // A JSON string is a Python string as long as no character outside the basic plane is escaped, and none is.
  return `${WRAPPER}run_cell(${JSON.stringify(code)})\n`
}
