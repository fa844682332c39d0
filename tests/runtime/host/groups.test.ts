/**
 * What a host, or a follower, does when its group gives its partitions up and back: a link that was cut, a process that was
 * stopped for longer than a session. And hosts that share a group's partitions on purpose.
 */
import { verifier } from '../../../actors/verification/verifier'
import type { VerifyAnswer } from '../../../messages/commands'
import type { Fact } from '../../../messages/facts'
import { groupId, runId, taskId, trajectoryId } from '../../../messages/ids'
import { createActorSystem } from '../../../runtime/actor/system'
import type { Bus, Subscription } from '../../../runtime/bus'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { systemEffects } from '../../../runtime/effects'
import type { Behaviour } from '../../../runtime/host/behaviour'
import { startHost } from '../../../runtime/host/host'
import type { Feed, Journal } from '../../../runtime/journal/journal'
import { openJournal } from '../../../runtime/journal/openJournal'
import { createLog } from '../../../runtime/log'
import { until } from '../../support/until'

const log = createLog('test', { level: 'silent' })
const fail = (error: Error) => {
  throw error
}
const stage = (name: string): Fact => ({ type: 'stage.changed', at: 0, stage: name, step: 0, reason: '' })
const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

/** A bus whose groups can be without all of their members for a while. */
function losing() {
  const inner = openMemoryBus()
  const members: { readonly again: () => Promise<Subscription>; now: Subscription }[] = []
  const bus: Bus = {
    ...inner,
    async subscribe(options, handler) {
      const again = () => inner.subscribe(options, handler)
      const member = { again, now: await again() }
      members.push(member)
      return { ...member.now, commit: at => member.now.commit(at), close: () => member.now.close() }
    },
  }
  cleanups.push(() => inner.close())
  return {
    bus,
    async lose() {
      for (const member of members) await member.now.close()
    },
    async giveBack() {
      for (const member of members) member.now = await member.again()
    },
  }
}

async function journalOn(bus: Bus, partitions = 1): Promise<Journal> {
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(partitions)
  return journal
}

function system() {
  const made = createActorSystem({ name: 'test', log, onDeadLetter: () => {} })
  cleanups.push(() => made.stop())
  return made
}

test.each(['oldest', 'latest', 'committed'] as const)(
  'a host that was without its partition for a while misses nothing and takes nothing twice (from %s)',
  async from => {
    const { bus, lose, giveBack } = losing()
    const journal = await journalOn(bus)
    let stages: readonly string[] = []
    const behaviour: Behaviour<readonly string[]> = {
      name: 'stages',
      initial: () => [],
      evolve(state, fact) {
        stages = fact.type === 'stage.changed' ? [...state, fact.stage] : state
        return stages
      },
      pending: () => ({ facts: [], commands: [] }),
    }
    const feeds: readonly Feed[] = [{ topic: 'learner', from }]
    const common = { journal, system: system(), fx: systemEffects, log, onFailed: fail }
    const host = await startHost({ name: 'stages', behaviour, feeds, ...common })
    cleanups.push(() => host.close())
    await host.live
    await journal.append([stage('a')])
    await until(() => stages.length === 1)
    await lose()
    await journal.append([stage('b'), stage('c')])
    await giveBack()
    await journal.append([stage('d')])
    await until(() => stages.includes('d'))
    expect(stages).toEqual(['a', 'b', 'c', 'd'])
  },
)

test.each(['oldest', 'latest'] as const)(
  'a follower that was without its partition for a while misses nothing and is told nothing twice (from %s)',
  async from => {
    const { bus, lose, giveBack } = losing()
    const journal = await journalOn(bus)
    const seen: string[] = []
    const feeds: readonly Feed[] = [{ topic: 'learner', from }]
    const following = await journal.follow({ group: 'g', feeds, onError: fail }, async entries => {
      for (const { message } of entries) if (message.type === 'stage.changed') seen.push(message.stage)
    })
    cleanups.push(() => following.close())
    // Nothing had come before the first loss.
    for (const [k, name] of ['a', 'b', 'c'].entries()) {
      await lose()
      await journal.append([stage(name)])
      await giveBack()
      await until(() => seen.length > k)
    }
    expect(seen).toEqual(['a', 'b', 'c'])
  },
)

test('hosts that share a group answer for all partitions together, each for its part, and what one leaves the others take', async () => {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const journal = await journalOn(bus, 4)
  const answered: string[][] = [[], []]
  const hosts = await Promise.all(
    answered.map((own, k) =>
      startHost({
        ...{ name: `verifier-${k}`, group: 'verifier', shared: true, behaviour: verifier() },
        ...{ journal, system: system(), fx: systemEffects, log, onFailed: fail },
        feeds: [{ topic: 'verifications', from: 'latest' }],
        keyOf: (ask: VerifyAnswer) => ask.trajectory,
        async perform(ask: VerifyAnswer) {
          own.push(ask.trajectory)
          return undefined
        },
      }),
    ),
  )
  cleanups.push(() => hosts[1]!.close())
  await Promise.all(hosts.map(host => host.live))
  const ask = (name: string): readonly VerifyAnswer[] =>
    Array.from({ length: 40 }, (_, k) => ({
      ...{ type: 'answer.verify', trajectory: trajectoryId(groupId(`${name}${k}`), 0), attempt: 0 },
      ...{ reward: '', truth: '', response: '', task: { id: taskId('t'), messages: [], truth: '', reward: '' } },
    }))
  await journal.append(ask('a'))
  await until(() => answered.flat().length === 40)
  expect(answered.map(own => own.length > 0)).toEqual([true, true])
  await hosts[0]!.close()
  await journal.append(ask('b'))
  await until(() => answered[1]!.filter(name => name.startsWith('b')).length === 40)
})
