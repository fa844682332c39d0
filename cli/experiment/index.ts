/**
 * `troupe experiment NAME`: measures, and writes a report with pictures.
 * What was measured before is kept in --dir: an experiment that was cut off goes on where it was.
 */
import { resolve } from 'node:path'
import type { Command } from 'commander'
import { systemEffects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import { makeOut } from '../io/writeOut'
import { wholeNumber } from '../options/readers'
import { baseModels } from './baseModels'
import { coldStart } from './coldStart'
import { environmentThroughput } from './environmentThroughput'
import { errorClassification } from './errorClassification'
import type { Experiment } from './experiment'
import { writeReport } from './report'
import { rocAblation } from './rocAblation'
import { schedulerSweep } from './schedulerSweep'

/** Those whose arms are trained, each with every seed. */
const seeded: Readonly<Record<string, Experiment>> = {
  'roc-ablation': rocAblation,
  'cold-start': coldStart,
  'base-models': baseModels,
}
const unseeded: Readonly<Record<string, Experiment>> = {
  'environment-throughput': environmentThroughput,
  'error-classification': errorClassification,
  'scheduler-sweep': schedulerSweep,
}
const experiments = new Map(Object.entries({ ...seeded, ...unseeded }))
const usualSeeds = 5

interface Given {
  readonly out: string
  readonly dir: string
  readonly seeds?: number
}

export function registerExperiment(program: Command): void {
  program
    .command('experiment <name>')
    .description(`measure, and write a report: ${[...experiments.keys()].join(', ')}`)
    .option('--out <dir>', 'where the report goes', 'docs/experiments')
    .option('--dir <dir>', 'where the logs of its runs go', '.troupe/experiments')
    .option(
      '--seeds <n>',
      `of ${Object.keys(seeded).join(', ')}: how many (default: ${usualSeeds})`,
      wholeNumber(1, 100),
    )
    .action(async (name: string, { out, dir, seeds }: Given) => {
      const experiment = experiments.get(name)
      if (experiment === undefined) throw noExperiment(name)
      if (seeds !== undefined && seeded[name] === undefined) throw noSeeds(name)
      makeOut(resolve(out))
      const begun = systemEffects.elapsed()
      const say = (line: string) => void process.stderr.write(`${line}\n`)
      const report = await experiment({ seeds: seeds ?? usualSeeds, directory: resolve(dir, name), say })
      const file = await writeReport(report, resolve(out), (systemEffects.elapsed() - begun) / 1000)
      process.stdout.write(`${file}\n`)
    })
}

const noExperiment = (name: string) =>
  new TroupeError('cli.no_experiment', {
    boundary: 'cli',
    retriable: false,
    message: `there is no experiment '${name}'`,
    hint: `experiments: ${[...experiments.keys()].join(', ')}`,
  })

const noSeeds = (name: string) =>
  new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: `--seeds says nothing to '${name}': it measures once`,
    hint: `leave it out, or name one of ${Object.keys(seeded).join(', ')}`,
  })
