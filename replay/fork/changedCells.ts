/**
 * Reruns the notebook cells of a trajectory to be forked, because the sandbox session that held their state is gone.
 *
 * in   a trajectory, the turn to fork at
 * out  cells before that turn whose output now differs from the recorded one
 * The fork's notebook has the state that the cells make now, while the model is shown the recorded output; so the
 * caller can warn the user about every cell whose output differs.
 */
import { codeOptions } from '../../actors/tools/codeEnvironment'
import { openRunTools } from '../../actors/tools/runTools'
import { toolResultText, truncateMiddle } from '../../kernels'
import type { ToolAsked, ToolCompleted } from '../../messages/facts'
import { openSandbox } from '../../sandbox'
import { notebookTool } from '../../sandbox/tools/notebookTool'
import type { RecipeCode } from '../log/recipeCode'
import { factsIn, type Trajectory } from '../trajectories/trajectory'

/** A notebook cell whose output differs: as the model was shown it (`recorded`), and as the rerun gives it (`now`). */
export interface ChangedCell {
  readonly turn: number
  readonly call: number
  readonly recorded: string
  readonly now: string
}

export async function changedCells(
  parent: Trajectory,
  turn: number,
  code: RecipeCode,
): Promise<readonly ChangedCell[]> {
  const { asked, said } = cellsBefore(parent, turn)
  if (asked.size === 0) return []
  const { toolTimeoutMs: timeoutMs, toolResponseChars } = parent.request.limits
  const sandbox = await openSandbox({ ...codeOptions(code.config.tools), lanes: 1 })
  try {
    const { tools, close } = await openRunTools(code, sandbox)
    try {
      const notebook = tools.get(notebookTool.name)
      const cells: string[] = []
      const changed: ChangedCell[] = []
      for (const [place, { turn: at, call, arguments: args }] of asked) {
        const limits = { timeoutMs, trajectory: parent.id, cells: [...cells] }
        const outcome = await notebook?.(args, limits, AbortSignal.timeout(graceMs + timeoutMs * (cells.length + 1)))
        const now = outcome === undefined ? '' : truncateMiddle(toolResultText(outcome), toolResponseChars)
        const recorded = said.get(place)
        if (recorded !== undefined && recorded !== now) changed.push({ turn: at, call, recorded, now })
        if (typeof args.code === 'string') cells.push(args.code)
      }
      return changed
    } finally {
      await close()
    }
  } finally {
    await sandbox.close()
  }
}

/**
 * Milliseconds for starting the sandbox. The time limit of a cell is this, plus one tool timeout for the cell and one
 * for each cell before it.
 */
const graceMs = 30_000

/**
 * Collects the notebook calls before `turn`, in order: the arguments of each (`asked`), and the result text that the
 * model was shown (`said`).
 */
function cellsBefore(parent: Trajectory, turn: number) {
  const asked = new Map<string, ToolAsked>()
  const said = new Map<string, string>()
  const isBefore = (fact: ToolAsked | ToolCompleted) => fact.tool === notebookTool.name && fact.turn < turn
  for (const fact of factsIn(parent)) {
    if (fact.type !== 'tool.asked' && fact.type !== 'tool.completed') continue
    const place = `${fact.turn}#${fact.call}`
    if (!isBefore(fact)) continue
    if (fact.type === 'tool.asked') asked.set(place, fact)
    else said.set(place, fact.text)
  }
  return { asked, said }
}
