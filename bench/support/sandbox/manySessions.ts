/**
 * Measures 2,000 notebook sessions of 20 cells each, all live at once: what a cell costs as its number grows, and the
 * memory of a live session.
 *
 * in   the sandbox, as a library      out  measurements, and the budgets that they are compared with
 */
import { openSandbox, type Sandbox } from '../../../sandbox'
import { atLeast, atMost } from '../../report'
import { processTree, pssBytes } from '../processTree'
import type { Part } from './rates'

const MIB = 1024 * 1024
const SESSIONS = 2000
const CELLS = 20
/** Cells in flight: the sandbox has a few lanes a core, so more would wait in its queue. */
const IN_FLIGHT = 64

/**
 * Every session runs its cell k before any runs its cell k + 1, so that each session waits while all others are live.
 */
export async function sessions(python: string): Promise<Part> {
  const sandbox = await openSandbox({ python, sessionMemoryMb: 4096 })
  try {
    const before = memoryMiB()
    const msPerCell: number[] = []
    let right = 0
    for (let cell = 0; cell < CELLS; cell++) {
      const began = performance.now()
      right += await runCells(sandbox, cell)
      msPerCell.push((performance.now() - began) / SESSIONS)
      process.stderr.write(`sandbox: sessions: cell ${cell + 1} of ${CELLS}: ${msPerCell.at(-1)!.toFixed(2)} ms\n`)
    }
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    // The first cell also starts its session's process, so it is left out; all later cells do the same work.
    const growth = mean(msPerCell.slice(-5)) / mean(msPerCell.slice(1, 6))
    return {
      metrics: {
        'sessions.firstCellMs': msPerCell[0]!,
        'sessions.cells2To6Ms': mean(msPerCell.slice(1, 6)),
        'sessions.cells16To20Ms': mean(msPerCell.slice(-5)),
        'sessions.liveMiBASession': (memoryMiB() - before) / SESSIONS,
      },
      budgets: [
        atLeast('2,000 sessions of 20 cells: share of right answers', right / (SESSIONS * CELLS), 1),
        atMost('2,000 sessions: a cell of 16 to 20, times one of 2 to 6', growth, 1.2),
      ],
    }
  } finally {
    await sandbox.close()
  }
}

/**
 * Runs one cell of every session; returns the number of right answers. A session whose state was lost would count from
 * 0 again.
 */
async function runCells(sandbox: Sandbox, cell: number): Promise<number> {
  const code = cell === 0 ? 'import time\nborn = time.time_ns()\nn = 0\nprint(n)' : 'n += 1\nprint(n)'
  let next = 0
  let right = 0
  const worker = async () => {
    while (next < SESSIONS) {
      const session = `s${next++}`
      const { status, stdout } = await sandbox.run({ id: 'bench', mode: 'cell', code, session: { id: session, cell } })
      if (status === 'ok' && Buffer.from(stdout).toString() === `${cell}\n`) right++
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker))
  return right
}

const memoryMiB = () => processTree(process.pid).reduce((sum, { pid }) => sum + pssBytes(pid), 0) / MIB
