/**
 * Records in the run's log that a full disk pauses the run.
 *
 * in   pauses      out  the fact alarm.raised, `disk-full`, appended at once while other appends wait
 * Invariant: an alarm that cannot be appended (usually since no space is left) is dropped; the process's own log
 * reports the pause in any case.
 */
import type { Pause } from '../disk/diskPause'
import { sizeText } from '../disk/freeSpace'
import type { Effects } from '../effects'
import type { Log } from '../log'
import type { Journal } from './journal'

/**
 * Makes the function to call when a pause begins: it appends the alarm `disk-full`.
 * @param journal a journal whose appends fail on a full disk, instead of waiting for room
 */
export const diskAlarm =
  (journal: Journal, fx: Effects, log: Log) =>
  ({ what, directory, needBytes, freeBytes }: Pause): void => {
    const message = `the run pauses: ${directory} has no space left for ${what}; ${sizeText(needBytes)} are needed and ${sizeText(freeBytes)} are free. It resumes by itself when there is room`
    journal
      .append([{ type: 'alarm.raised', at: fx.now(), alarm: 'disk-full', message }])
      .catch(err => log.debug({ err }, 'the alarm of a full disk could not be written'))
  }
