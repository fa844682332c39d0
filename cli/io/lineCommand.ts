/**
 * Handles signals and closed pipes for commands that answer lines of stdin.
 *
 * in   the streams and an AbortController
 * out  the exit code. The first signal destroys the input; the second signal, or an output that fails, also aborts the
 * work.
 * Invariant: after the first signal, lines that were already read are still answered; the second signal aborts these
 * too.
 */
import type { Readable, Writable } from 'node:stream'

/**
 * Runs `act`, and handles SIGINT and SIGTERM meanwhile. Returns the exit code: 0 without a signal, 130 after SIGINT,
 * 143 after SIGTERM.
 */
export async function underSignals(
  input: Readable,
  act: (abort: AbortController) => Promise<unknown>,
): Promise<number> {
  let code = 0
  const abort = new AbortController()
  const onSignal = (signal: NodeJS.Signals) => {
    if (code !== 0) abort.abort()
    code = signal === 'SIGINT' ? 130 : 143
    input.destroy()
  }
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal)
  try {
    await act(abort)
    return code
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal)
  }
}

/**
 * Runs `act`, and aborts it when the output can no longer be written to.
 * @throws the output's error, except when its reader closed it
 */
export async function whileWritable(
  input: Readable,
  output: Writable,
  abort: AbortController,
  act: () => Promise<void>,
): Promise<void> {
  let failure: Error | undefined
  const onError = (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') failure = error
    abort.abort()
    input.destroy()
  }
  output.on('error', onError)
  try {
    await act()
  } finally {
    output.off('error', onError)
  }
  if (failure) throw failure
}
