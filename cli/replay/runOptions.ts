/**
 * What the replay commands share: the options that name a log, how they open and close it, and the report of records
 * that cannot be read.
 */
import type { Command } from 'commander'
import { faultText } from '../../replay/log/faults'
import { type OpenLogOptions, openLog, type RecordedRun } from '../../replay/log/recordedRun'
import { TroupeError } from '../../runtime/errors'
import { withBus, withDirectory } from '../options/busOptions'

export type ReadOptions = Omit<OpenLogOptions, 'onNotice'>

const shownFaults = 8

export function withRun(command: Command): Command {
  return withDirectory(withBus(command))
    .option('--run <id>', 'the run (default: the newest)')
    .option('--at <topic:partition:offset>', 'the run as it stood when this record was written')
    .option('--reindex', 'make the index of its trajectories anew')
}

/** Writes a notice of the log's reader to stderr. */
export const onNotice = (text: string) => process.stderr.write(`${text}\n`)

/** Opens the log that the options name; its notices go to stderr. */
export const openRecorded = (options: ReadOptions): Promise<RecordedRun> => openLog({ ...options, onNotice })

/** Opens the log, calls `answer`, reports on stderr what could not be read, and closes the log in every case. */
export async function withLog<T>(options: ReadOptions, answer: (recorded: RecordedRun) => Promise<T>): Promise<T> {
  const recorded = await openRecorded(options)
  try {
    const given = await answer(recorded)
    reportFaults(recorded)
    return given
  } finally {
    await recorded.close()
  }
}

/** Lists on stderr the records that could not be read; everything else was shown. */
function reportFaults(recorded: RecordedRun): void {
  for (const fault of recorded.faults.slice(0, shownFaults)) process.stderr.write(`${faultText(fault)}\n`)
  const more = recorded.faults.length - shownFaults
  if (more > 0) process.stderr.write(`${more} more; \`troupe replay verify\` lists all\n`)
}

/** The error for a command line that does not say enough. `code`: without its prefix, `no_target` becomes `cli.no_target`. */
export const usageError = (code: string, message: string, hint: string): TroupeError =>
  new TroupeError(`cli.${code}`, { boundary: 'cli', retriable: false, message, hint })
