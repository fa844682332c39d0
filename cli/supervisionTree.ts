/**
 * `troupe doctor --tree RUN`: prints a run's supervision tree with states, restarts and reasons.
 *
 * in   a run's log        out  a line per actor; with --json, a line per tree
 * Invariant: the log is only read. A tree whose process is gone is marked so and shown with the last states that it
 * wrote.
 */
import { type ProcessStanding, processStanding } from '../replay/log/processStanding'
import { openLog } from '../replay/log/recordedRun'
import { type ActorNode, type SupervisionTree, supervisionTrees } from '../replay/log/supervisionTrees'
import { TroupeError } from '../runtime/errors'
import { duration, escapeForTerminal, painter } from './io/terminal'

export interface TreeOptions {
  readonly bus: string
  readonly dir?: string
  readonly tree: string
  readonly json?: boolean
}

export async function printTree({ tree: run, json, ...where }: TreeOptions): Promise<void> {
  const recorded = await openLog({ ...where, run })
  try {
    const trees = await supervisionTrees(recorded)
    if (trees.length === 0) {
      throw new TroupeError('cli.no_tree', {
        boundary: 'cli',
        retriable: false,
        message: `the log of run '${recorded.run}' holds no record of a supervision tree`,
        hint: 'imported runs, chats, separate gateways (`troupe gateway`) and runs of older versions have none; `troupe replay verify` checks their logs',
      })
    }
    const paint = painter(process.stdout)
    for (const tree of trees) {
      process.stdout.write(json ? `${JSON.stringify(jsonOf(tree))}\n` : `${textOf(tree, Date.now(), paint)}\n`)
    }
  } finally {
    await recorded.close()
  }
}

function jsonOf(tree: SupervisionTree) {
  const actors = tree.actors.map(({ actor, kind, state, restarts, reason, devices, at }) => ({
    ...{ actor, kind, state, restarts, at },
    ...(devices === undefined ? {} : { devices }),
    ...(reason === undefined ? {} : { reason }),
  }))
  return { tree: tree.tree, host: tree.host, pid: tree.pid, process: processStanding(tree), at: tree.at, actors }
}

const standings: Readonly<Record<ProcessStanding, string>> = {
  running: 'it runs',
  stopped: 'the process has stopped',
  gone: 'the process is gone, killed or crashed: these are the last states that it wrote',
  'on another host': 'the process runs, or ran, on another host',
}

/** Formats a supervision tree as text. `now`: milliseconds since 1970. */
export function textOf(tree: SupervisionTree, now: number, paint: ReturnType<typeof painter>): string {
  const age = duration((now - tree.at) / 1000)
  const head = `${tree.host}, process ${tree.pid}: ${standings[processStanding(tree)]}; last change ${age} ago`
  const lines = linesOf(tree.root, '', '')
  const width = Math.max(...lines.map(({ label }) => label.length))
  return [
    paint('bold', head),
    ...lines.map(({ label, node: { status } }) => {
      if (status === undefined) return label
      const { kind, state, restarts, reason, devices } = status
      const colour = state === 'up' ? 'green' : state === 'stopped' ? 'dim' : 'yellow'
      const gpus = devices === undefined ? '' : `  GPU ${escapeForTerminal(devices.join(', '))}`
      const line = `${label.padEnd(width)}  ${kind.padEnd(10)}  ${paint(colour, state.padEnd(10))}${gpus}`
      const times = restarts === 1 ? '1 restart' : `${restarts} restarts`
      const why = reason === undefined ? '' : `: ${escapeForTerminal(reason.split('\n')[0]!)}`
      return restarts === 0 && reason === undefined ? line.trimEnd() : `${line}  ${times}${why}`
    }),
  ].join('\n')
}

function linesOf(node: ActorNode, lead: string, below: string): { readonly label: string; readonly node: ActorNode }[] {
  return [
    { label: `${lead}${node.name}`, node },
    ...node.children.flatMap((child, k) => {
      const isLast = k === node.children.length - 1
      return linesOf(child, `${below}${isLast ? '└─ ' : '├─ '}`, `${below}${isLast ? '   ' : '│  '}`)
    }),
  ]
}
