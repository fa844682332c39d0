/**
 * Options that every replay command shares, and the report of records that could not be read.
 */
import type { Command } from 'commander'
import { faultText } from '../../replay/log/faults'
import { type OpenLogOptions, openLog, type RecordedRun } from '../../replay/log/recordedRun'
import { withBus, withDirectory } from '../options/busOptions'

export function withRun(command: Command): Command {
  return withDirectory(withBus(command))
    .option('--run <id>', 'the run (default: the newest)')
    .option('--at <topic:partition:offset>', 'the run as it stood when this record was written')
    .option('--reindex', 'make the index of its trajectories anew')
}

export type ReadOptions = Omit<OpenLogOptions, 'onNotice'>

/** Opens the log that the options name; its notices go to stderr. */
export const openRecorded = (options: ReadOptions): Promise<RecordedRun> =>
  openLog({ ...options, onNotice: text => process.stderr.write(`${text}\n`) })

/** Lists on stderr the records that could not be read; everything else was shown. */
export function reportFaults(recorded: RecordedRun, most = 8): void {
  for (const fault of recorded.faults.slice(0, most)) process.stderr.write(`${faultText(fault)}\n`)
  const more = recorded.faults.length - most
  if (more > 0) process.stderr.write(`${more} more; \`troupe replay verify\` lists all\n`)
}
