/** A run on Kafka whose processes, children, clocks, disk, broker and link are struck at random: it ends, and everything counts once. */
import { join } from 'node:path'
import { kafkaChaos } from '../support/chaos/kafkaRun'
import { faultsIn, wrongIn } from '../support/chaos/outcome'
import { smallRun } from '../support/smallRun'

jest.setTimeout(600_000)

test('whatever dies, hangs, jumps, is full or cut off, no turn counts twice, nothing is lost, and no step is trained twice', async () => {
  const steps = 16
  // 16 rollouts a step are judged one after the other: it cannot be over before it was hurt.
  const slowly = ['--set', `reward.file=${join(__dirname, '../support/slowParity.py')}`, '--set', 'reward.processes=1']
  const settings = ['--steps', `${steps}`, ...smallRun(300), ...slowly]
  const times = { faultsForMs: 40_000, leastFaults: 3, everyMs: 2000, endWithinMs: 240_000, diskMegabytes: 512 }
  const result = await kafkaChaos({ run: 'chaos', seed: 1, settings, ...times })
  expect(wrongIn(result)).toEqual([])
  expect(result.audit.steps).toHaveLength(steps)
  expect(faultsIn(result)).toBeGreaterThanOrEqual(3)
})
