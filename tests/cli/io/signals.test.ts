/** Stop signals reach a run that is still starting. */
import { stopSignals } from '../../../cli/io/signals'

const quiet = () => jest.spyOn(process.stderr, 'write').mockReturnValue(true)

test('a stop signal aborts a start, whose failure is then no error; a start that was not stopped fails as it failed', async () => {
  quiet()
  const signals = stopSignals()
  const failing = signals.starting(() => Promise.reject(new Error('no model')))
  await expect(failing).rejects.toThrow('no model')
  const starting = signals.starting(
    stop => new Promise<never>((_, reject) => stop.addEventListener('abort', () => reject(new Error('stopped')))),
  )
  process.emit('SIGTERM', 'SIGTERM')
  expect(await starting).toBeUndefined()
  expect(signals.exitCode()).toBe(143)
  signals.release()
})

test('a stop signal after the start leaves its signal alone: the run that it made is closed instead', async () => {
  quiet()
  const signals = stopSignals()
  const stop = await signals.starting(async signal => signal)
  process.emit('SIGINT', 'SIGINT')
  await signals.stopped
  expect(stop!.aborted).toBe(false)
  signals.release()
})
