/** A run whose processes, and whose broker, are killed and stopped at random: it ends, and everything counts once. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chaos } from '../support/chaos'
import { startKafka } from '../support/kafka'
import { smallRun } from '../support/smallRun'

jest.setTimeout(600_000)

test('whatever dies or hangs, no turn counts twice, no trajectory is lost, and no step is trained twice', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-chaos-'))
  const kafka = await startKafka()
  try {
    const steps = 16
    // 16 rollouts a step are judged one after the other: it cannot be over before it was hurt.
    const slowly = [
      '--set',
      `reward.file=${join(__dirname, '../support/slowParity.py')}`,
      '--set',
      'reward.processes=1',
    ]
    const settings = ['--steps', `${steps}`, ...smallRun(300), ...slowly]
    const times = { faultsForMs: 40_000, everyMs: 2000, endWithinMs: 240_000 }
    const result = await chaos({ kafka, directory, run: 'chaos', seed: 1, settings, ...times })
    const all = Array.from({ length: steps }, (_, n) => n + 1)
    expect(result.outcome).toBe('done')
    expect(result.audit).toMatchObject({ turnsTwice: [], lost: [], steps: all, started: all, deadLetters: 0 })
    expect(result.audit.violations).toEqual([])
    expect([...result.faults.values()].reduce((a, b) => a + b, 0)).toBeGreaterThanOrEqual(3)
  } finally {
    await kafka.stop()
    rmSync(directory, { recursive: true, force: true })
  }
})
