/**
 * Participants of a run: engines with their KV cache, tool executors, topics with their lag, the supervision tree.
 *
 * in   an opened run        out  JSON of api.ts
 * Invariant: everything is read from the bus: the log's records, its offsets and, for the lag, committed offsets. So a
 * run of another host, or one that has crashed, shows its last states.
 */

import type { TopicName } from '../../../messages/topics'
import { topicOnBus, topics } from '../../../messages/topics'
import { type ActorNode, treesOf } from '../../../replay/log/supervisionTrees'
import type { ActorLine, Cluster, EngineLine } from '../../api'
import { type CommandPlace, commandOf } from '../commands'
import type { OpenedRun } from '../openedRun'
import { shownLine } from '../shownText'

/**
 * Number of the newest records of `tool-calls` in which each executor's latest offer of slots is searched; an executor
 * offers its slots once a second.
 */
const offersAmong = 2000

export async function cluster(run: OpenedRun, place: CommandPlace): Promise<Cluster> {
  const { recorded, telemetry, facts } = run
  await telemetry.refresh(recorded)
  const begins = facts.marks.filter(({ kind }) => kind === 'started' || kind === 'resumed')
  return {
    engines: [...facts.engines.keys()].sort().map(name => engineLine(run, name)),
    executors: await executors(run),
    topics: await topicLines(run),
    trees: treesOf([...telemetry.actors.values()], begins.at(-1)?.at ?? 0).map(tree => ({
      ...{ tree: shownLine(tree.tree), host: shownLine(tree.host), pid: tree.pid, at: tree.at },
      ...{ isStopped: tree.isStopped, root: actorLine(tree.root) },
    })),
    commands: [
      { what: 'the supervision tree', command: treeCommand(place) },
      { what: 'check every record of the log', command: commandOf(place, 'replay', 'verify') },
    ],
  }
}

/** `doctor` names the run by --tree, and not by --run. */
const treeCommand = (place: CommandPlace): string => commandOf(place, 'doctor').replace(/ --run (\S+)$/, ' --tree $1')

function engineLine({ facts, telemetry }: OpenedRun, name: string): EngineLine {
  const { joined, state, reason, version } = facts.engines.get(name)!
  const status = telemetry.engines.get(name)?.at(-1)
  const ledger = telemetry.ledgers.get(name)
  return {
    ...{ engine: shownLine(name), kind: shownLine(joined.kind), model: shownLine(joined.model), state },
    reason: shownLine(reason),
    kvTokens: status?.kvTokens ?? joined.kvTokens,
    referencedTokens: status?.referencedTokens ?? null,
    cachedTokens: status?.cachedTokens ?? null,
    // The ledger's status has the drift: the engine's KV tokens minus those that the ledger expects.
    expectedTokens:
      status === undefined || ledger === undefined ? null : Math.max(0, status.referencedTokens - ledger.driftTokens),
    ...{ running: status?.running ?? null, waiting: status?.waiting ?? null, maxSequences: joined.maxSequences },
    version: status?.version ?? version,
    tokensPerSecond: telemetry.tokensPerSecond(name),
    preemptions: status?.preemptions ?? null,
    at: status?.at ?? null,
  }
}

async function executors({ recorded }: OpenedRun): Promise<Cluster['executors']> {
  const found = new Map<string, Cluster['executors'][number]>()
  for (let partition = 0; partition < recorded.partitionsOf('tool-calls'); partition++) {
    const end = await recorded.endOf('tool-calls', partition)
    await recorded.pick(
      'tool-calls',
      Array.from({ length: Math.min(end, offersAmong) }, (_, i) => ({
        partition,
        offset: end - Math.min(end, offersAmong) + i,
      })),
      ({ message, timestamp }) => {
        if (message.type !== 'executor.slots') return
        const { executor, slots, held, tools } = message
        const line = {
          executor: shownLine(executor),
          slots,
          held: held.length,
          tools: tools.map(name => shownLine(name)),
        }
        found.set(executor, { ...line, at: timestamp })
      },
      headers => headers.type === 'executor.slots',
    )
  }
  return [...found.values()].sort((a, b) => a.executor.localeCompare(b.executor))
}

async function topicLines({ recorded }: OpenedRun): Promise<Cluster['topics']> {
  const lines: Cluster['topics'][number][] = []
  for (const topic of Object.keys(topics) as TopicName[]) {
    const name = topicOnBus(recorded.run, topic)
    for (let partition = 0; partition < recorded.partitionsOf(topic); partition++) {
      const { oldest, next } = await recorded.bus.offsets(name, partition)
      const [last] = next > oldest ? await recorded.bus.read(name, partition, next - 1, 1).catch(() => []) : []
      lines.push({
        topic,
        partition,
        oldest,
        next,
        lastAt: last?.timestamp ?? null,
        lag: await lagOf(topic, partition),
      })
    }
  }
  return lines

  async function lagOf(topic: TopicName, partition: number): Promise<number | null> {
    const group = groups[topic]
    if (group === undefined) return null
    const name = topicOnBus(recorded.run, topic)
    const done = await recorded.bus.committed(group(recorded.run), name, partition).catch(() => undefined)
    return done === undefined ? null : Math.max(0, (await recorded.endOf(topic, partition)) - done)
  }
}

/**
 * Consumer groups that commit offsets, by topic. Owners of partitions commit the offset of the oldest fact of an open
 * group.
 */
const groups: Partial<Record<TopicName, (run: string) => string>> = {
  trajectories: run => `troupe.${run}.owner.committed`,
  verifications: run => `troupe.${run}.verifier.latest`,
}

function actorLine({ name, status, children }: ActorNode): ActorLine {
  return {
    name: shownLine(name),
    kind: status?.kind ?? '',
    state: status?.state ?? '',
    restarts: status?.restarts ?? 0,
    reason: shownLine(status?.reason ?? '', 400),
    devices: (status?.devices ?? []).map(device => shownLine(device)),
    children: children.map(actorLine),
  }
}
