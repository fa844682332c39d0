/** One process a run: a second one is refused by name, and takes over once the first has let go. */
import { runId } from '../../../messages/ids'
import { type Bus, openMemoryBus } from '../../../runtime/bus'
import { joinElection } from '../../../runtime/bus/leaderElection'
import { lockRun } from '../../../runtime/bus/runLock'
import { TroupeError } from '../../../runtime/errors'

test('a run is held once; who lets go makes room; other runs are not concerned', async () => {
  const bus = openMemoryBus()
  const fail = (error: Error): void => {
    throw error
  }
  const first = await lockRun(bus, runId('r'), fail)
  const refused = await lockRun(bus, runId('r'), fail).catch(thrown => thrown)
  expect(refused).toMatchObject({ code: 'bus.run_held', message: expect.stringContaining("'r'") })
  const other = await lockRun(bus, runId('s'), fail)
  await first.release()
  const second = await lockRun(bus, runId('r'), fail)
  await second.release()
  await other.release()
  await bus.close()
})

test('a seat has one owner; who stands by is given it when the owner goes, and a held run has every seat', async () => {
  const bus = openMemoryBus()
  const run = runId('r')
  const said: string[] = []
  const sit = (name: string) =>
    joinElection(bus, run, 'learner', {
      onElected: () => said.push(`${name} taken`),
      onLost: () => said.push(`${name} lost`),
      onError: error => said.push(error.message),
    })
  const first = await sit('first')
  const second = await sit('second')
  expect([first.isLeader(), second.isLeader(), await first.confirmLeader(), await second.confirmLeader()]).toEqual([
    true,
    false,
    true,
    false,
  ])
  await expect(lockRun(bus, run, () => {})).rejects.toMatchObject({ code: 'bus.run_held' })
  await first.release()
  expect([first.isLeader(), second.isLeader()]).toEqual([false, true])
  expect(said).toEqual(['first taken', 'second taken'])
  await second.release()
  await (await lockRun(bus, run, () => {})).release()
  await bus.close()
})

test('who may have no seat at all is told why, and not that another process drives the run', async () => {
  const inner = openMemoryBus()
  const denied = new TroupeError('bus.denied', { boundary: 'bus', retriable: false, message: 'no rights on the group' })
  for (const refused of ['learner', 'scheduler']) {
    const bus: Bus = {
      ...inner,
      async subscribe(options, handler) {
        if (!options.group.endsWith(`seat.${refused}`)) return inner.subscribe(options, handler)
        // As Kafka's driver: it says so, and then that the group has settled.
        queueMicrotask(() => options.onError(denied))
        const nobody = { commit: async () => {}, pause: () => {}, resume: () => {}, close: async () => {} }
        return { ...nobody, holds: () => false }
      },
    }
    const lost: Error[] = []
    await expect(lockRun(bus, runId('r'), error => lost.push(error))).rejects.toBe(denied)
    expect(lost).toEqual([])
  }
  // Nothing was kept of it.
  await (await lockRun(inner, runId('r'), () => {})).release()
  await inner.close()
})
