/** One process a run: a second one is refused by name, and takes over once the first has let go. */
import { runId } from '../messages/ids'
import { openMemoryBus } from '../runtime/bus'
import { holdRun } from '../runtime/bus/hold'

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
