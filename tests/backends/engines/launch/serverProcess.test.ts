/** A server of a run's own: started with a port and a key, watched, ended with everything that it started. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { startServerProcess } from '../../../../backends/engines/launch/serverProcess'
import { isAlive } from '../../../support/cli'
import { until } from '../../../support/until'

const folder = mkdtempSync(join(tmpdir(), 'troupe-launch-test-'))
const script = join(folder, 'server.cjs')
// A server with a worker process in its group, as vLLM has; it ignores SIGTERM if it is told to.
writeFileSync(
  script,
  `const worker = require('node:child_process').spawn('sleep', ['1000'], { stdio: 'ignore' })
if (process.env.STUBBORN) process.on('SIGTERM', () => {})
console.log('listens with', process.env.GPUS)
require('node:http').createServer((request, reply) => {
  if (request.url === '/end') process.exit(3)
  reply.end(request.url === '/pids' ? JSON.stringify([process.pid, worker.pid])
    : JSON.stringify({ token: process.env.TOKEN, gpus: process.env.GPUS, key: request.headers.authorization }))
}).listen(Number(process.argv[2]), '127.0.0.1')`,
)
const cleanups: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup()
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const given = (
  env: Record<string, string> = {},
  words = (port: number) => [process.execPath, script, String(port)],
) => ({
  ...{ name: 'vllm-0', env: { GPUS: '4,5' }, healthPath: '/health', startTimeoutMs: 20_000 },
  signal: new AbortController().signal,
  command: (port: number, token: string) => ({
    command: words(port) as [string, ...string[]],
    env: { TOKEN: token, GPUS: 'of the recipe', ...env },
  }),
})
const pidsOf = async (url: string) => (await (await fetch(`${url}/pids`)).json()) as number[]

test('it serves on loopback, knows its key, and sees the GPUs of its lease', async () => {
  const server = await startServerProcess(given())
  cleanups.push(() => server.close())
  expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
  expect(server.token).toMatch(/^troupe-[\da-f-]{36}$/)
  expect(await (await fetch(server.url)).json()).toEqual({ token: server.token, gpus: '4,5' })
})

test.each([
  ['closed', {}],
  ['closed, even if it ignores SIGTERM', { STUBBORN: '1' }],
])(
  'when it is %s, its workers end too',
  async (_, env) => {
    const server = await startServerProcess(given(env))
    const pids = await pidsOf(server.url)
    await server.close()
    await until(async () => !pids.some(isAlive))
  },
  30_000,
)

test('when it ends by itself, its engine hears why and its workers end too', async () => {
  const server = await startServerProcess(given())
  cleanups.push(() => server.close())
  const [, worker] = await pidsOf(server.url)
  await fetch(`${server.url}/end`).catch(() => {})
  const lost = {
    code: 'engine.lost',
    retriable: true,
    message: expect.stringMatching(/ended with exit code 3; last output:\nlistens/),
  }
  expect(await server.lost).toMatchObject(lost)
  await until(async () => !isAlive(worker!))
})

test.each([
  ['itself', '$$'],
  ['its guard', '$PPID'],
])('a start that SIGKILL of %s ends is tried again; one that ends by itself is not', async (_, pid) => {
  const start = (program: string) => startServerProcess(given({}, () => ['sh', '-c', program] as never))
  await expect(start(`kill -9 ${pid}; sleep 10`)).rejects.toMatchObject({
    code: 'process.start_failed',
    retriable: true,
  })
  await expect(start('exit 3')).rejects.toMatchObject({ code: 'process.start_failed', retriable: false })
})

test('kill -9 of its parent ends the server, its workers and the guard', async () => {
  const file = join(__dirname, '../../../children/launchingParent.ts')
  const parent = spawn(process.execPath, ['-r', join(__dirname, '../../../../cli/register.js'), file, script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const line = await new Promise<string>(resolve => createInterface({ input: parent.stdout }).once('line', resolve))
  const pids = JSON.parse(line) as number[]
  expect(pids.every(isAlive)).toBe(true)
  parent.kill('SIGKILL')
  await until(async () => !pids.some(isAlive), 20_000)
}, 60_000)

test('a server that does not start says why; one that a signal ended may be started again', async () => {
  const failed = startServerProcess(
    given({}, () => [process.execPath, '-e', 'console.error("no such flag"); process.exit(2)']),
  )
  await expect(failed).rejects.toMatchObject({
    code: 'process.start_failed',
    retriable: false,
    message: expect.stringContaining('no such flag'),
  })
  const absent = startServerProcess(given({}, () => ['/nowhere/vllm']))
  await expect(absent).rejects.toMatchObject({
    code: 'process.start_failed',
    message: expect.stringMatching(/\/nowhere\/vllm: No such file/),
  })
  const silent = startServerProcess({ ...given({}, () => ['sleep', '1000']), startTimeoutMs: 300 })
  await expect(silent).rejects.toMatchObject({ code: 'process.start_timeout' })
  const stopped = new AbortController()
  const unwanted = startServerProcess({ ...given({}, () => ['sleep', '1000']), signal: stopped.signal })
  stopped.abort(new Error('no longer wanted'))
  await expect(unwanted).rejects.toThrow('no longer wanted')
}, 60_000)
