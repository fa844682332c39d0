/**
 * Waits until a server is asked to end.
 *
 * in   SIGINT, SIGTERM, the end of npx; the end of stdin if asked        out  the exit code: 130, 143, or 0 for stdin
 */
import { onNpxEnd } from './npxParent'

export function untilSignal(orStdin = false): Promise<number> {
  return new Promise(resolve => {
    const onInterrupt = () => end(130)
    const onTerminate = () => end(143)
    const onEnd = () => end(0)
    const end = (code: number) => {
      process.off('SIGINT', onInterrupt).off('SIGTERM', onTerminate)
      stopWatching()
      if (orStdin) process.stdin.off('end', onEnd).off('close', onEnd).pause()
      resolve(code)
    }
    const stopWatching = onNpxEnd(onTerminate)
    process.on('SIGINT', onInterrupt).on('SIGTERM', onTerminate)
    if (orStdin) process.stdin.once('end', onEnd).once('close', onEnd).resume()
  })
}
