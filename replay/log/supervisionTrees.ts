/**
 * Reads the supervision trees of a run from its log: one tree for each process that takes part in the run.
 *
 * in   actor.status of `telemetry`, the run's latest start        out  trees of actors with their latest states
 * Invariant: the log is only read, so this works on another process's run, live or dead. Trees that wrote nothing since
 * the run was last started or resumed are left out; if no tree is left, the newest tree is returned.
 */
import type { ActorStatus } from '../../messages/commands'
import { factsOf, type RecordedRun } from './recordedRun'

export interface ActorNode {
  readonly name: string
  /** The actor's latest status; undefined when the log has statuses of its children only. */
  readonly status: ActorStatus | undefined
  /** Child actors sorted by name; numbers in names sort as numbers. */
  readonly children: readonly ActorNode[]
}

export interface SupervisionTree {
  readonly tree: string
  readonly host: string
  readonly pid: number
  /** Time of the tree's latest record, ms since 1970. */
  readonly at: number
  /** True when every actor of the tree has stopped or was given up: the process ended the tree itself. */
  readonly isStopped: boolean
  readonly root: ActorNode
  readonly actors: readonly ActorStatus[]
}

/** Returns the run's trees, those with the latest records first. */
export async function supervisionTrees(recorded: RecordedRun): Promise<readonly SupervisionTree[]> {
  const latest = new Map<string, ActorStatus>()
  await recorded.scan(
    'telemetry',
    ({ message }) => {
      if (message.type === 'actor.status') latest.set(`${message.tree} ${message.actor}`, message)
    },
    headers => headers.type === 'actor.status',
  )
  const begins = await factsOf(recorded, 'runs', ['run.started', 'run.resumed'])
  return treesOf([...latest.values()], begins.at(-1)?.at ?? 0)
}

/**
 * Builds trees. `records`: the latest status of every actor. `since`: when the run was last started or resumed, ms
 * since 1970.
 */
export function treesOf(records: readonly ActorStatus[], since: number): readonly SupervisionTree[] {
  const byTree = new Map<string, ActorStatus[]>()
  for (const record of records) byTree.set(record.tree, [...(byTree.get(record.tree) ?? []), record])
  const trees = [...byTree.values()].map(actors => {
    const { tree, host, pid } = actors[0]!
    return {
      ...{ tree, host, pid, actors, root: nodeOf('root', 'root', actors) },
      at: Math.max(...actors.map(({ at }) => at)),
      isStopped: actors.every(({ state }) => state === 'stopped' || state === 'given-up'),
    }
  })
  trees.sort((a, b) => b.at - a.at)
  const current = trees.filter(({ at }) => at >= since)
  return current.length > 0 ? current : trees.slice(0, 1)
}

function nodeOf(path: string, name: string, actors: readonly ActorStatus[]): ActorNode {
  const below = actors.filter(({ actor }) => actor.startsWith(`${path}/`))
  const names = new Set(below.map(({ actor }) => actor.slice(path.length + 1).split('/')[0]!))
  const children = [...names]
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))
    .map(child => nodeOf(`${path}/${child}`, child, below))
  return { name, status: actors.find(({ actor }) => actor === path), children }
}
