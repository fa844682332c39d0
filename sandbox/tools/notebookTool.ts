/**
 * A notebook as a tool: each call is a cell of one session, and sees what the cells before it have made.
 *
 * in   the code of a cell, the codes of those before it      out  how it ended, with what it printed
 * Invariant: the session is the trajectory's, and the cell's number follows from how many came before; asked again, a cell runs
 * from where the one before it ended. A sandbox that does not know the session runs the earlier cells first.
 */
import { notUnicode } from '../escapedText'
import type { Sandbox } from '../sandbox'
import { type PythonToolLimits, type PythonToolResult, toolResultOf } from './pythonTool'

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

/** @throws SandboxError as Sandbox.run does: never because of what the code did */
export async function runNotebookCell(
  sandbox: Sandbox,
  cell: { readonly code: string; readonly session: string; readonly before: readonly string[] },
  { id = 'cell', signal, maxProcesses: _none, ...limits }: PythonToolLimits = {},
): Promise<PythonToolResult> {
  // One that is no Unicode text was rejected when it was asked for, and left nothing.
  const history = cell.before.map(code => ({ code: notUnicode(code) ? '' : code }))
  const session = { id: cell.session, cell: history.length, history }
  return toolResultOf(await sandbox.run({ id, code: cell.code, ...limits, session }, signal))
}
