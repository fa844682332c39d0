/**
 * The long chaos run: `npm run test:chaos -- [--minutes 30] [--seed N] [--bus lmdb|kafka] [--small] [--out DIR]`. The quickstart,
 * with `--small` one of an unschooled model and seconds a step for a busy machine, once undisturbed, then under faults for so
 * many minutes, half of them on lmdb, half on Kafka, again and again. Prints each fault, and what each run's log and scores
 * came to. The log of a run in which something is wrong stays in DIR (default: chaos), as a fixture for `replay import`.
 * A signal ends the processes of the run too.
 * Exit 1 when a turn counted twice, a trajectory or a reward was lost, a step was trained twice, `replay verify` finds a
 * fault, a run did not end, or its last pass@1 is further from the undisturbed one than three standard errors of their
 * difference.
 */
import { rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { kafkaChaos } from './support/chaos/kafkaRun'
import { lmdbChaos } from './support/chaos/lmdbRun'
import { type ChaosOutcome, faultsIn, wrongIn } from './support/chaos/outcome'
import { descendantsOf } from './support/descendants'
import { exitWith } from './support/exitWith'
import { smallRun } from './support/smallRun'

/** From the last fault to a run's end, ms. */
const endWithinMs = 1_800_000
const everyMs = 3000
/** Less time for faults than this is not worth another run, ms. */
const leastMs = 30_000
/** A reward in Python, so that there are reward processes; it judges as the quickstart's own does. */
const wholeRun = [
  'reward.name=python',
  `reward.file=${join(__dirname, 'support/exactReward.py')}`,
  'reward.processes=2',
]
const slowReward = [`reward.file=${join(__dirname, 'support/slowParity.py')}`, 'reward.processes=2']
const sets = (settings: readonly string[]) => settings.flatMap(setting => ['--set', setting])
const settingsOf = (isSmall: boolean) =>
  isSmall ? ['--steps', '12', ...smallRun(300), ...sets([...slowReward, 'evaluation.problems=64'])] : sets(wholeRun)

type Kind = 'lmdb' | 'kafka'
type Given = { readonly run: string; readonly seed: number; readonly faultsForMs: number; readonly keepIn?: string }

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string' },
      seed: { type: 'string' },
      bus: { type: 'string' },
      small: { type: 'boolean' },
      out: { type: 'string' },
    },
  })
  const minutes = Number(values.minutes ?? 30)
  const seed = Number(values.seed ?? 1)
  const kinds = (['lmdb', 'kafka'] as const).filter(kind => (values.bus ?? kind) === kind)
  if (!(minutes > 0) || !Number.isInteger(seed) || kinds.length === 0) {
    console.error('usage: npm run test:chaos -- [--minutes N] [--seed N] [--bus lmdb|kafka] [--small] [--out DIR]')
    return 2
  }
  const begun = performance.now()
  const say = (text: string) => console.error(`${((performance.now() - begun) / 1000).toFixed(0)} s: ${text}`)
  const settings = settingsOf(values.small === true)
  const common = { settings, everyMs, endWithinMs, diskMegabytes: 1024, say }
  const chaosOn: Readonly<Record<Kind, (given: Given) => Promise<ChaosOutcome>>> = {
    lmdb: given => lmdbChaos({ ...common, ...given }),
    kafka: given => kafkaChaos({ ...common, ...given }),
  }
  const wrong: string[] = []
  /** Each run's figures and verdict are printed when it ends, so that a test that is cut off has those of the earlier ones. */
  const one = async (kind: Kind, given: Given, reference?: ChaosOutcome) => {
    say(`${given.run} begins`)
    const keepIn = resolve(values.out ?? 'chaos', `${given.run}.jsonl`)
    const result = await chaosOn[kind]({ ...given, keepIn })
    console.log(JSON.stringify({ run: given.run, ...described(result) }))
    const found = wrongIn(result, reference).map(what => `${given.run}: ${what}`)
    console.log(found.length === 0 ? `${given.run}: nothing is wrong` : found.join('\n'))
    if (found.length === 0) rmSync(keepIn, { force: true })
    wrong.push(...found)
    return result
  }
  const undisturbed = await one('lmdb', { run: 'undisturbed', seed, faultsForMs: 0 })
  const disturbed: ChaosOutcome[] = []
  for (const kind of kinds) {
    let leftMs = (minutes * 60_000) / kinds.length
    for (let n = 1; leftMs > leastMs; n++) {
      const run = `${kind}-${n}`
      const since = performance.now()
      const given = { run, seed: seed + disturbed.length, faultsForMs: leftMs }
      disturbed.push(await one(kind, given, undisturbed))
      leftMs -= performance.now() - since
    }
  }
  const all = new Map<string, number>()
  for (const { faults } of disturbed) for (const [name, n] of faults) all.set(name, (all.get(name) ?? 0) + n)
  console.log(JSON.stringify(Object.fromEntries([...all].sort(([a], [b]) => (a < b ? -1 : 1)))))
  const faults = disturbed.map(faultsIn).reduce((a, b) => a + b, 0)
  console.log(`${wrong.length === 0 ? 'survived' : 'NOT survived:'} ${faults} faults in ${disturbed.length} runs`)
  return wrong.length === 0 ? 0 : 1
}

function described({ faults, leftOut, audit, outcome, evaluations, learners, unrewarded }: ChaosOutcome) {
  const scores = evaluations.map(({ step, passAt1, standardError, n }) => ({ step, passAt1, standardError, n }))
  return { outcome, scores, faults: Object.fromEntries(faults), leftOut, learners, unrewarded, ...audit }
}

process.once('exit', () => {
  for (const pid of descendantsOf(process.pid)) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended meanwhile.
    }
  }
})
for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)
  process.once(signal, () => process.exit(code))
exitWith(main)
