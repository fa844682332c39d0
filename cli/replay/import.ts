/**
 * `troupe replay import F`: imports a file or directory of trajectories as a new run, and prints the run's name.
 */
import type { Command } from 'commander'
import { maxImportBytes } from '../../replay/exchange/fixture'
import { importRun } from '../../replay/exchange/importRun'
import { withBus, withDirectory } from '../options/busOptions'
import { wholeNumber } from '../options/readers'
import { jsonText } from './text/jsonText'

interface ImportOptions {
  readonly bus: string
  readonly dir?: string
  readonly as?: string
  readonly maxMb: number
  readonly json?: boolean
}

const mib = 1024 * 1024

export function registerImport(replay: Command): void {
  const command = replay
    .command('import <file>')
    .description(
      "make a new run from exported JSON lines, a fixture, or verl's rollout_data_dir (a file or a directory)",
    )
    .option('--as <run>', 'name of the new run (default: import-<file>)')
    .option(
      '--max-mb <n>',
      'refuse an import that is larger, in MiB, packed or unpacked',
      wholeNumber(1, 4096),
      maxImportBytes / mib,
    )
    .option('--json', 'print one JSON object')
  withDirectory(withBus(command)).action(async (file: string, { json, maxMb, ...options }: ImportOptions) => {
    const imported = await importRun(file, { ...options, maxBytes: maxMb * mib })
    const { run, trajectories, facts } = imported
    process.stdout.write(
      json ? `${jsonText(imported)}\n` : `run ${run}: ${trajectories} trajectories, ${facts} facts\n`,
    )
  })
}
