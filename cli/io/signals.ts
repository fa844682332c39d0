/**
 * Stop signals: the first SIGINT or SIGTERM asks a command to stop gently, the second ends the process at once. The
 * end of the npx that started this process counts as SIGTERM, unless a signal came before.
 */
import { onNpxEnd } from './npxParent'

export interface StopSignals {
  /** Resolves with the name of the first stop signal. */
  readonly stopped: Promise<'SIGINT' | 'SIGTERM'>
  /**
   * Runs `work`, whose AbortSignal the first stop signal aborts. Resolves with the result of `work`, or with undefined
   * if `work` fails after a stop signal. A failure without a stop signal is thrown.
   */
  starting<T>(work: (stop: AbortSignal) => Promise<T>): Promise<T | undefined>
  /** Exit code after the last stop signal: 130 after SIGINT, 143 after SIGTERM; 0 before any. */
  exitCode(): number
  release(): void
}

export function stopSignals(): StopSignals {
  let code = 0
  let resolveStopped: (name: 'SIGINT' | 'SIGTERM') => void = () => {}
  const stopped = new Promise<'SIGINT' | 'SIGTERM'>(resolve => {
    resolveStopped = resolve
  })
  const on = (name: 'SIGINT' | 'SIGTERM') => () => {
    const second = code !== 0
    code = name === 'SIGINT' ? 130 : 143
    // Child processes end by themselves, because their standard input closes.
    if (second) process.exit(code)
    process.stderr.write(`\n${name}: stopping; a second signal ends the process at once\n`)
    resolveStopped(name)
  }
  const onInt = on('SIGINT')
  const onTerm = on('SIGTERM')
  process.on('SIGINT', onInt)
  process.on('SIGTERM', onTerm)
  // Ctrl-C reaches this process and npx: the end of npx must not count as the second signal.
  const stopWatching = onNpxEnd(() => code === 0 && onTerm())
  return {
    stopped,
    async starting(work) {
      const stop = new AbortController()
      let isOver = false
      void stopped.then(() => isOver || stop.abort())
      try {
        return await work(stop.signal)
      } catch (thrown) {
        if (code === 0) throw thrown
        return undefined
      } finally {
        isOver = true
      }
    },
    exitCode: () => code,
    release() {
      process.off('SIGINT', onInt)
      process.off('SIGTERM', onTerm)
      stopWatching()
    },
  }
}
