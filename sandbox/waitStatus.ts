/**
 * Translates the status that wait4 gives for an ended process into the sandbox's terms.
 *
 * in   a wait status, and whether the deadline ended the process      out  status, exit code, name of the signal
 */
import { constants } from 'node:os'
import type { RunEnding } from './sandbox'

// Names of signals by number. The list is reversed, so that of two names for one number the first is kept: SIGABRT, not
// SIGIOT.
const signalNames = new Map(
  Object.entries(constants.signals)
    .reverse()
    .map(([name, number]) => [number, name]),
)

/** Translates a wait status. @param timedOut true if the sandbox killed the process at its deadline */
export function endingOf(waitStatus: number, timedOut: boolean): Pick<RunEnding, 'status' | 'exitCode' | 'signal'> {
  const signalNumber = waitStatus & 0x7f
  const signal = signalNumber === 0 ? null : (signalNames.get(signalNumber) ?? `SIG${signalNumber}`)
  const exitCode = signalNumber === 0 ? waitStatus >> 8 : null
  return { status: timedOut ? 'timeout' : signal ? 'killed' : exitCode === 0 ? 'ok' : 'error', exitCode, signal }
}
