/**
 * Makes tools of the functions of a user's Python file: `tools.functions` of a recipe.
 *
 * in   the file, the names of its functions        out  their schemas, and a tool for each
 * The schemas are made from type hints and docstrings (policy/troupe_policy/functions/schemas.py), for which the file
 * is imported. A call runs in the sandbox, without files, network or state of other calls; with `run: beside`, in a
 * process of its own, with the Python of `tools.python` (default: the set-up's) and all rights of this process.
 * Invariant: a call ends at its deadline, and a late process is killed with all processes that it started. Arguments
 * that do not fit the schema never reach the function.
 */
import { execFile, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import type { ToolSchema } from '../../config/toolSchema'
import { toolOutcome } from '../../kernels'
import { systemEffects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import { killGroup } from '../../runtime/killGroup'
import { failedHow, policyDirectory, pythonPath, torchPythonPath, userCodeEnvironment } from '../../runtime/python'
import { retryLost } from '../../sandbox/retryLost'
import type { Sandbox } from '../../sandbox/sandbox'
import { textResult } from '../../sandbox/tools/pythonTool'
import { argumentChecker } from './functionTool'
import type { Tool } from './toolPort'

/** The recipe's field `tools.functions`: a Python file whose functions are tools. */
export interface PythonFunctions {
  readonly file: string
  readonly names?: readonly string[] | undefined
  readonly run: 'sandbox' | 'beside'
}

const importMs = 60_000
const callScript = join(policyDirectory(), 'troupe_policy/functions/call.py')

const read = new Map<string, Promise<readonly ToolSchema[]>>()

/**
 * Returns the schemas of the file's functions `names`. The file is imported once for each content and list of names.
 * @throws TroupeError config.bad_tool_file, with the file and the line
 */
export function functionSchemas({ file, names = [] }: PythonFunctions): Promise<readonly ToolSchema[]> {
  const path = resolve(file)
  const key = JSON.stringify([path, names, sourceOf(path)])
  const known = read.get(key) ?? schemasOf(path, names)
  read.set(key, known)
  known.catch(() => read.delete(key))
  return known
}

async function schemasOf(path: string, names: readonly string[]): Promise<readonly ToolSchema[]> {
  const args = ['-m', 'troupe_policy.functions.schemas', path, ...names]
  const python = torchPythonPath() // schemas are made by transformers
  const { stdout } = await promisify(execFile)(python, args, { env: userCodeEnvironment(), timeout: importMs }).catch(
    thrown => {
      throw badFile(path, `it cannot be imported: ${failedHow(thrown, importMs)}`)
    },
  )
  const said = JSON.parse(stdout) as { tools?: ToolSchema[]; fault?: string; line?: number | null }
  if (said.tools !== undefined) return said.tools
  throw badFile(said.line == null ? path : `${path}:${said.line}`, said.fault ?? 'it cannot be imported')
}

function sourceOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (thrown) {
    throw badFile(path, `cannot be read: ${asError(thrown).message}`)
  }
}

const badFile = (place: string, why: string) =>
  new TroupeError('config.bad_tool_file', {
    boundary: 'config',
    retriable: false,
    message: `${place}: ${why}`,
    hint: 'a tool is a function with a type hint for each parameter and a docstring that describes it and, below `Args:`, each parameter; docs/tools.md',
  })

/** Makes the tool of one function. `python`: interpreter of calls with `run: beside`; default: the set-up's. */
export function pythonFunction(
  schema: ToolSchema,
  { file, run }: PythonFunctions,
  place: { readonly sandbox: Sandbox; readonly memoryMb: number; readonly python?: string | undefined },
): Tool {
  const path = resolve(file)
  const source = sourceOf(path)
  const code = readFileSync(callScript, 'utf8')
  const faultOf = argumentChecker(schema)
  return async (args, { timeoutMs }, signal) => {
    const reason = faultOf(args)
    if (reason !== undefined) return toolOutcome({ status: 'rejected', reason })
    const stdin = JSON.stringify({ file: path, source, function: schema.name, arguments: args })
    if (run === 'beside') return beside(place.python ?? pythonPath(), dirname(path), stdin, timeoutMs, signal)
    const { sandbox, memoryMb } = place
    const request = { id: schema.name, code, stdin, timeoutMs, memoryMb }
    return { ...textResult(await retryLost(() => sandbox.run(request, signal))), timeoutMs }
  }
}

async function beside(python: string, cwd: string, stdin: string, timeoutMs: number, signal: AbortSignal) {
  const begun = systemEffects.elapsed()
  const child = spawn(python, [callScript], { cwd, detached: true, stdio: ['pipe', 'pipe', 'pipe'] })
  let isLate = false
  const late = setTimeout(() => {
    isLate = true
    killGroup(child)
  }, timeoutMs)
  const stop = () => killGroup(child)
  signal.addEventListener('abort', stop, { once: true })
  child.stdin.on('error', () => {}) // the process may end before it has read its input
  child.stdin.end(stdin)
  const ended = new Promise<{ exitCode: number | null; signal: string | null; error?: Error }>(done => {
    child.once('error', error => done({ exitCode: null, signal: null, error }))
    child.once('exit', (exitCode, by) => {
      killGroup(child) // processes that the call left running would keep the pipes open
      done({ exitCode, signal: by })
    })
  })
  const [stdout, stderr, { error, ...end }] = await Promise.all([text(child.stdout), text(child.stderr), ended])
  clearTimeout(late)
  signal.removeEventListener('abort', stop)
  signal.throwIfAborted()
  const status = isLate ? 'timeout' : end.signal !== null ? 'killed' : end.exitCode === 0 ? 'ok' : 'error'
  const reason = error === undefined ? {} : { reason: error.message }
  return toolOutcome({ ...end, ...reason, status, stdout, stderr, timeoutMs, wallMs: systemEffects.elapsed() - begun })
}
