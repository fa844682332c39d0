/**
 * Resumes a run in its own process: coordinator, grouper, evaluator, curriculum and learner, without engines, tools and
 * trainer.
 *
 * in   {directory, groups} as the first argument      out  {seconds, peakMib, open} or {error} to the parent
 * The clock runs from the opening of the bus until every actor is live: it has computed its state from the log, and
 * repeated its open requests.
 */
import { readFileSync } from 'node:fs'
import { curriculum } from '../../actors/curriculum/curriculum'
import { evaluator } from '../../actors/curriculum/evaluator'
import { learner } from '../../actors/learning/learner'
import { fenced } from '../../actors/ownership/fencing'
import { coordinator } from '../../actors/rollouts/coordinator'
import { grouper } from '../../actors/rollouts/grouper'
import { oldestOpen, owner } from '../../actors/rollouts/owner'
import { type Begin, beginOf, followedFeeds, saidOf } from '../../actors/run/roles/followed'
import { runId } from '../../messages/ids'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { openTroupe } from '../../runtime/embed'

export interface ResumedRun {
  readonly directory: string
  readonly groups: number
}

/**
 * Anonymous memory of this process, in MiB. It leaves out the log pages that lmdb maps, which the kernel can reclaim at
 * any time.
 */
const ownMib = () => Number(/RssAnon:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'latin1'))?.[1]) / 1024
const sampleMs = 20

async function main({ directory, groups }: ResumedRun): Promise<void> {
  const began = performance.now()
  let peakMib = 0
  const sample = () => {
    peakMib = Math.max(peakMib, ownMib())
  }
  const sampling = setInterval(sample, sampleMs)
  const bus = await openLmdbBus({ directory, mode: 'write' })
  const troupe = await openTroupe({ bus, blobs: memoryBlobs(), run: 'r' })
  const begin: Begin = beginOf(await saidOf(troupe.journal), { learns: true })
  let open = 0
  const selection = {
    variant: 'paper' as const,
    ...{ keep: 8, minPositive: 2, minNegative: 2, rejectEqual: true },
    ...{ errorRatio: true, answerFormat: true },
  }
  const hosts = [
    await troupe.host({
      behaviour: owner(coordinator({ turnTimeoutMs: 1e12 }), grouper({ runSeed: 1, selection })),
      feeds: [{ topic: 'trajectories', from: 'committed' }],
      owner: 'resumed',
      oldestOpen: state => {
        open = [...state.coordinator.groups.values()].reduce((sum, group) => sum + group.members.size, 0)
        return oldestOpen(state)
      },
    }),
    await troupe.host({ behaviour: fenced(evaluator()), feeds: followedFeeds, begin }),
    await troupe.host({
      behaviour: fenced(
        curriculum({
          ...{ run: runId('r'), steps: 1000, groupsPerStep: groups, refillShare: 0, maxStaleness: 0 },
          ...{ maxRejectedSteps: 3, learns: true, evaluation: { problems: 0, every: 0 } },
        }),
      ),
      feeds: followedFeeds,
      begin,
    }),
    await troupe.host({
      behaviour: fenced(learner({ groupsPerStep: groups, refillShare: 0, steps: 1000 })),
      feeds: followedFeeds,
      begin,
    }),
  ]
  await Promise.all(hosts.map(host => host.live))
  const seconds = (performance.now() - began) / 1000
  await new Promise(resolve => setTimeout(resolve, 1500)) // waits for the owner's next commit, which sets `open`
  sample()
  clearInterval(sampling)
  process.send!({ seconds, peakMib, open })
  await troupe.close()
  await bus.close()
}

main(JSON.parse(process.argv[2]!) as ResumedRun).catch((error: Error) => {
  process.send!({ error: error.stack ?? error.message })
  process.exit(1)
})
