/** Stop signals reach a run that is still starting. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
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

test('the end of the shell in which npx started a command stops the command', async () => {
  const root = join(__dirname, '../../..')
  const waits = `
    const signals = require('./cli/io/signals').stopSignals()
    signals.stopped.then(name => { console.log(name, signals.exitCode()); process.exit() })
    setTimeout(() => { console.log('goes on'); process.exit() }, 20_000)
    console.log('ready', process.env.npm_lifecycle_script)`
  // npm runs a command as `sh -c 'troupe' …`; the shell does not pass on its signals.
  const shell = spawn('sh', ['-c', '"$0" -r ./cli/register.js -e "$1"; :', process.execPath, waits], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...process.env, npm_lifecycle_event: 'npx', npm_lifecycle_script: "'troupe'" },
  })
  const lines = createInterface({ input: shell.stdout })[Symbol.asyncIterator]()
  // Commands that this one starts are not of npx.
  expect((await lines.next()).value).toBe('ready undefined')
  shell.kill('SIGTERM')
  expect((await lines.next()).value).toBe('SIGTERM 143')
}, 60_000)
