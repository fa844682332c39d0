/**
 * The long chaos run: `npm run test:chaos -- [--minutes 30] [--seed N]`. Prints each fault, and at the end what the log came to.
 * Exit 1 when a turn counted twice, a trajectory was lost, a step was trained twice, or the run did not end.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { chaos } from './support/chaos'
import { exitWith } from './support/exitWith'
import { startKafka } from './support/kafka'

/** About as many as are done in a minute while faults go on. */
const stepsPerMinute = 10

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { minutes: { type: 'string' }, seed: { type: 'string' } } })
  const minutes = Number(values.minutes ?? 30)
  const seed = Number(values.seed ?? 1)
  if (!(minutes > 0) || !Number.isInteger(seed)) {
    console.error('usage: npm run test:chaos -- [--minutes N] [--seed N]')
    return 2
  }
  const directory = mkdtempSync(join(tmpdir(), 'troupe-chaos-'))
  const kafka = await startKafka()
  const begun = performance.now()
  const say = (text: string) => console.error(`${((performance.now() - begun) / 1000).toFixed(0)} s: ${text}`)
  try {
    const steps = Math.max(2, Math.round(minutes * stepsPerMinute))
    const times = { faultsForMs: minutes * 60_000, everyMs: 4000, endWithinMs: 1_800_000 }
    const { faults, audit, outcome, learners } = await chaos({ kafka, directory, seed, steps, ...times, say })
    const total = [...faults.values()].reduce((a, b) => a + b, 0)
    const isRight =
      outcome === 'done' &&
      audit.turnsTwice.length === 0 &&
      audit.lost.length === 0 &&
      audit.steps.join() === Array.from({ length: steps }, (_, n) => n + 1).join() &&
      audit.started.join() === audit.steps.join() &&
      audit.deadLetters === 0
    const seconds = Math.round((performance.now() - begun) / 1000)
    const counts = { faults: total, byKind: Object.fromEntries(faults), seconds, learners, outcome, ...audit }
    console.log(JSON.stringify(counts, null, 2))
    console.log(isRight ? `survived ${total} faults` : 'NOT survived')
    return isRight ? 0 : 1
  } finally {
    await kafka.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}

exitWith(main)
