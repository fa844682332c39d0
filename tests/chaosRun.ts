/**
 * The long chaos run: `npm run test:chaos -- [--minutes 30] [--seed N]`. The quickstart, once undisturbed, then again and again
 * under faults for so many minutes. Prints each fault, and what each run's log and scores came to.
 * Exit 1 when a turn counted twice, a trajectory was lost, a step was trained twice, a run did not end, or its last pass@1 is
 * further from the undisturbed one than three standard errors of their difference.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { type ChaosResult, chaos } from './support/chaos'
import { exitWith } from './support/exitWith'
import { startKafka } from './support/kafka'

/** From the last fault to a run's end, ms. */
const endWithinMs = 1_800_000

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
  const one = async (run: string, faultsForMs: number) => {
    const times = { faultsForMs, everyMs: 4000, endWithinMs }
    const result = await chaos({ kafka, directory, run, seed: seed + runs.length, settings: [], ...times, say })
    runs.push(result)
    console.log(JSON.stringify({ run, ...described(result) }))
  }
  const runs: ChaosResult[] = []
  try {
    await one('undisturbed', 0)
    const until = performance.now() + minutes * 60_000
    for (let n = 1; performance.now() < until; n++) await one(`chaos-${n}`, until - performance.now())
    const [undisturbed, ...disturbed] = runs
    const wrong = disturbed.flatMap((result, n) => wrongIn(result, undisturbed!).map(what => `chaos-${n + 1}: ${what}`))
    for (const what of wrong) console.log(what)
    const faults = disturbed.map(faultsOf).reduce((a, b) => a + b, 0)
    console.log(`${wrong.length === 0 ? 'survived' : 'NOT survived:'} ${faults} faults in ${disturbed.length} runs`)
    return wrong.length === 0 ? 0 : 1
  } finally {
    await kafka.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}

const faultsOf = ({ faults }: ChaosResult) => [...faults.values()].reduce((a, b) => a + b, 0)

function described({ faults, audit, outcome, evaluations, learners }: ChaosResult) {
  const scores = evaluations.map(({ step, passAt1, standardError, n }) => ({ step, passAt1, standardError, n }))
  return { outcome, scores, faults: Object.fromEntries(faults), learners, ...audit }
}

function wrongIn({ audit, outcome, evaluations }: ChaosResult, undisturbed: ChaosResult): string[] {
  const wrong: string[] = []
  if (outcome === 'failed') wrong.push(`it ended as ${outcome}`)
  if (audit.turnsTwice.length > 0) wrong.push(`turns that counted twice: ${audit.turnsTwice.join(', ')}`)
  if (audit.lost.length > 0) wrong.push(`lost: ${audit.lost.join(', ')}`)
  const inOrder = audit.steps.map((_, at) => at + 1).join()
  if (audit.steps.join() !== inOrder) wrong.push(`steps ${audit.steps.join()}`)
  if (audit.started.join() !== inOrder) wrong.push(`started ${audit.started.join()}`)
  wrong.push(...audit.violations.map(({ kind, message }) => `${kind}: ${message}`))
  if (audit.deadLetters > 0) wrong.push(`${audit.deadLetters} dead letters`)
  const [last, aim] = [evaluations.at(-1)!, undisturbed.evaluations.at(-1)!]
  const noise = 3 * Math.hypot(last.standardError ?? 0, aim.standardError ?? 0)
  if (Math.abs(last.passAt1 - aim.passAt1) > noise) wrong.push(`pass@1 ${last.passAt1}, undisturbed ${aim.passAt1}`)
  return wrong
}

exitWith(main)
