/** One process a run: a second one is refused by name, and takes over once the first has let go. */
import { runId } from '../messages/ids'
import { openMemoryBus } from '../runtime/bus'
import { holdRun } from '../runtime/bus/hold'
import { openSeat } from '../runtime/bus/seat'

test('a run is held once; who lets go makes room; other runs are not concerned', async () => {
  const bus = openMemoryBus()
  const fail = (error: Error): void => {
    throw error
  }
  const first = await holdRun(bus, runId('r'), fail)
  const refused = await holdRun(bus, runId('r'), fail).catch(thrown => thrown)
  expect(refused).toMatchObject({ code: 'bus.run_held', message: expect.stringContaining("'r'") })
  const other = await holdRun(bus, runId('s'), fail)
  await first.release()
  const second = await holdRun(bus, runId('r'), fail)
  await second.release()
  await other.release()
  await bus.close()
})

test('a seat has one owner; who stands by is given it when the owner goes, and a held run has every seat', async () => {
  const bus = openMemoryBus()
  const run = runId('r')
  const said: string[] = []
  const sit = (name: string) =>
    openSeat(bus, run, 'learner', {
      onTaken: () => said.push(`${name} taken`),
      onLost: () => said.push(`${name} lost`),
      onError: error => said.push(error.message),
    })
  const first = await sit('first')
  const second = await sit('second')
  expect([first.isOurs(), second.isOurs(), await first.proven(), await second.proven()]).toEqual([
    true,
    false,
    true,
    false,
  ])
  await expect(holdRun(bus, run, () => {})).rejects.toMatchObject({ code: 'bus.run_held' })
  await first.release()
  expect([first.isOurs(), second.isOurs()]).toEqual([false, true])
  expect(said).toEqual(['first taken', 'second taken'])
  await second.release()
  await (await holdRun(bus, run, () => {})).release()
  await bus.close()
})
