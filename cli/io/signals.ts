/** Stop signals: the first SIGINT or SIGTERM asks a run to stop gently, the second ends the process at once. */
export interface StopSignals {
  /** Resolves with the first signal's name. */
  readonly stopped: Promise<'SIGINT' | 'SIGTERM'>
  /** 130 after SIGINT, 143 after SIGTERM. */
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
    // Children end with this process, because their standard input closes.
    if (second) process.exit(code)
    process.stderr.write(`\n${name}: ending the run; once more ends it at once\n`)
    resolveStopped(name)
  }
  const onInt = on('SIGINT')
  const onTerm = on('SIGTERM')
  process.on('SIGINT', onInt)
  process.on('SIGTERM', onTerm)
  return {
    stopped,
    exitCode: () => code,
    release() {
      process.off('SIGINT', onInt)
      process.off('SIGTERM', onTerm)
    },
  }
}
