/** A run in one process whose process, children, clock and disk are struck at random: it ends, and everything counts once. */
import { join } from 'node:path'
import { lmdbChaos } from '../support/chaos/lmdbRun'
import { faultsIn, wrongIn } from '../support/chaos/outcome'
import { smallRun } from '../support/smallRun'

jest.setTimeout(600_000)

test('whatever dies, hangs, jumps or is full, no turn counts twice, nothing is lost, and no step is trained twice', async () => {
  const steps = 4
  const slowly = ['--set', `reward.file=${join(__dirname, '../support/slowParity.py')}`, '--set', 'reward.processes=1']
  const settings = ['--steps', `${steps}`, ...smallRun(300), ...slowly]
  const times = { faultsForMs: 25_000, leastFaults: 5, everyMs: 1200, endWithinMs: 450_000, diskMegabytes: 512 }
  const result = await lmdbChaos({ run: 'chaos', seed: 1, settings, ...times })
  expect(wrongIn(result)).toEqual([])
  expect(result.audit.steps).toHaveLength(steps)
  expect(faultsIn(result)).toBeGreaterThanOrEqual(5)
})
