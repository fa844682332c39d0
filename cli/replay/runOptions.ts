/**
 * Shared parts of the replay commands: the options that name a log, opening and closing it, and the report of records
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
    .option('--run <id>', 'run to read (default: the newest)')
    .option('--at <topic:partition:offset>', 'read the run as it was when the record at this position was written')
    .option('--reindex', "rebuild the index of the run's trajectories")
}

/** Writes a notice of the log's reader to stderr. */
export const onNotice = (text: string) => process.stderr.write(`${text}\n`)

/** Opens the log that the options name; its notices go to stderr. */
export const openRecorded = (options: ReadOptions): Promise<RecordedRun> => openLog({ ...options, onNotice })

/** Opens the log, calls `answer`, reports unreadable records on stderr, and closes the log in every case. */
export async function withLog<T>(options: ReadOptions, answer: (recorded: RecordedRun) => Promise<T>): Promise<T> {
  const recorded = await openRecorded(options)
  try {
    return await answer(recorded)
  } finally {
    // Also after an error: an unreadable record may be why nothing was found.
    reportFaults(recorded)
    await recorded.close()
  }
}

/** Lists on stderr the records that could not be read. */
function reportFaults(recorded: RecordedRun): void {
  for (const fault of recorded.faults.slice(0, shownFaults)) process.stderr.write(`${faultText(fault)}\n`)
  const more = recorded.faults.length - shownFaults
  if (more > 0) process.stderr.write(`${more} more unreadable records; \`troupe replay verify\` lists all\n`)
}

/** Creates the error for a command line that cannot be obeyed. `code` has no prefix: `no_target` → `cli.no_target`. */
export const usageError = (code: string, message: string, hint: string): TroupeError =>
  new TroupeError(`cli.${code}`, { boundary: 'cli', retriable: false, message, hint })
