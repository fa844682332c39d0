/**
 * `troupe experiment NAME`: runs an experiment and writes a report with pictures.
 *
 * in   the name of an experiment        out  a report in --out; its path on stdout
 * Invariant: --dir keeps the logs of training runs, so an experiment that trains continues where it was interrupted; an
 * experiment that only measures starts again.
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

/** Experiments that train each of their arms with every seed; the others take no --seeds. */
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
const defaultSeeds = 5

interface Given {
  readonly out: string
  readonly dir: string
  readonly seeds?: number
}

export function registerExperiment(program: Command): void {
  program
    .command('experiment <name>')
    .description(`run an experiment and write a report: ${[...experiments.keys()].join(', ')}`)
    .option('--out <dir>', 'directory for the report', 'docs/experiments')
    .option('--dir <dir>', "directory for the logs of the experiment's runs", '.troupe/experiments')
    .option(
      '--seeds <n>',
      `number of seeds, for ${Object.keys(seeded).join(', ')} (default: ${defaultSeeds})`,
      wholeNumber(1, 100),
    )
    .action(async (name: string, { out, dir, seeds }: Given) => {
      const experiment = experiments.get(name)
      if (experiment === undefined) throw noExperiment(name)
      if (seeds !== undefined && seeded[name] === undefined) throw noSeeds(name)
      makeOut(resolve(out))
      const begun = systemEffects.elapsed()
      const say = (line: string) => void process.stderr.write(`${line}\n`)
      const report = await experiment({ seeds: seeds ?? defaultSeeds, directory: resolve(dir, name), say })
      const file = await writeReport(report, resolve(out), (systemEffects.elapsed() - begun) / 1000)
      process.stdout.write(`${file}\n`)
    })
}

const noExperiment = (name: string) =>
  new TroupeError('cli.no_experiment', {
    boundary: 'cli',
    retriable: false,
    message: `no experiment is named '${name}'`,
    hint: `known experiments: ${[...experiments.keys()].join(', ')}`,
  })

const noSeeds = (name: string) =>
  new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: `--seeds does not apply to the experiment '${name}', which measures once`,
    hint: `leave --seeds out, or run one of ${Object.keys(seeded).join(', ')}`,
  })
