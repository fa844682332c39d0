/**
 * The notebook tool: each call is a cell of one session and sees the names that earlier cells made.
 *
 * in   the code of a cell, the code of each earlier cell      out  status and output of the cell
 * Invariant: the caller gives each trajectory its own session; the number of earlier cells is the cell's number. A
 * repeated cell starts from the state of the cell before it. A sandbox that does not know the session runs the earlier
 * cells first.
 */
import { notUnicode } from '../escapedText'
import { retryLost } from '../retryLost'
import type { Sandbox } from '../sandbox'
import { type PythonToolLimits, type PythonToolResult, textResult } from './pythonTool'

export const notebookTool = {
  name: 'python_notebook',
  description:
    'Runs a cell of a Python notebook. Names that earlier cells have made are there. Returns what the cell printed and the ' +
    'value of its last expression; if it fails, the error with its line.',
  parameters: {
    type: 'object',
    properties: { code: { type: 'string', description: 'The Python code of the cell.' } },
    required: ['code'],
  },
} as const

/** Runs a cell. @throws SandboxError as Sandbox.run and textResult, never because of the code */
export async function runNotebookCell(
  sandbox: Sandbox,
  cell: { readonly code: string; readonly session: string; readonly before: readonly string[] },
  { id = 'cell', signal, maxProcesses: _none, ...limits }: PythonToolLimits = {},
): Promise<PythonToolResult> {
  // An earlier cell that was not Unicode text was rejected when it ran first, and left no state: an empty cell replaces
  // it.
  const history = cell.before.map(code => ({ code: notUnicode(code) ? '' : code }))
  const session = { id: cell.session, cell: history.length, history }
  return textResult(await retryLost(() => sandbox.run({ id, code: cell.code, ...limits, session }, signal)))
}
