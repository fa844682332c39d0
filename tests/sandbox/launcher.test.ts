/**
 * The launcher of level `none` reports that the code began before the code can act on the launcher: code that kills or
 * stops its launcher at once has begun, and its call is never taken for a failure of the sandbox.
 */
import { execFileSync, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { Duplex } from 'node:stream'
import { pythonPath } from '../../runtime/python'
import { canMount, onSmallDisk } from '../support/smallDisk'

const LAUNCHER = resolve(__dirname, '../../sandbox/freshProcess/launcher.py')
/** Runs the launcher with a fork that gives the child a head start, as a busy machine may. */
const SLOW_PARENT = `
import os, sys, time
fork = os.fork
def slow():
    pid = fork()
    if pid: time.sleep(1)
    return pid
os.fork = slow
sys.argv = sys.argv[1:]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], 'exec'), {'__name__': '__main__'})
`

let base: string
beforeAll(() => {
  base = mkdtempSync(join(tmpdir(), 'troupe-launcher-'))
})
afterAll(() => rmSync(base, { recursive: true, force: true }))

test.each([
  ['kills', 9],
  ['stops', 19],
])('code that %s its launcher at once has begun', async (name, signal) => {
  const code = Buffer.from(`import os\nos.kill(os.getppid(), ${signal})\nimport time\ntime.sleep(5)`)
  const numbers = [code.length, 2000, 2 ** 30, 2 ** 20, 64, -1].map(String)
  const started = [LAUNCHER, String(process.pid), base, join(base, name), ...numbers, '']
  const launcher = spawn(pythonPath(), ['-I', '-S', '-c', SLOW_PARENT, ...started], {
    stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
  })
  const control = launcher.stdio[3] as Duplex
  let report = ''
  const kill = () => launcher.kill('SIGKILL')
  const fallback = setTimeout(kill, 20_000)
  control.setEncoding('latin1').on('data', text => {
    report += text
    kill() // It may be stopped.
  })
  control.on('error', () => undefined)
  control.write(code)
  const ended = new Promise(done => launcher.once('exit', done))
  await ended
  clearTimeout(fallback)
  expect(report).toMatch(/^begun \d+\n/)
})

const onDisk = canMount ? test : test.skip
onDisk(
  'code that does not fit the disk has not begun: the call has failed, not the code',
  () => {
    const disk = join(base, 'disk')
    mkdirSync(disk)
    const run = `
require('./cli/register.js')
require('./sandbox/index.ts').openSandbox({ level: 'none' }).then(async sandbox => {
  const run = code => sandbox.run({ id: 'x', timeoutMs: 10000, code }).then(r => r.status, e => e.code + ' ' + e.retriable)
  console.log(await run('#'.repeat(6 << 20)), await run('print(1)'))
  await sandbox.close()
})`
    const [command, ...words] = onSmallDisk(disk, 4, process.execPath, '-e', run)
    const env = { ...process.env, TMPDIR: disk }
    const said = execFileSync(command!, words, { cwd: resolve(__dirname, '../..'), env, encoding: 'utf8' })
    expect(said).toBe('sandbox.start_failed true ok\n')
  },
  60_000,
)
