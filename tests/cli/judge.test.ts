/** `troupe judge` as a command: what it says, what it refuses, how signals end it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { until } from '../support/until'

const bin = resolve(__dirname, '../../cli/bin.js')
const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

function start(options: readonly string[]) {
  const child = spawn(process.execPath, [bin, 'judge', '--port', '0', ...options], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  children.push(child)
  const said = { stderr: '' }
  child.stderr.setEncoding('utf8').on('data', text => {
    said.stderr += text
  })
  const ended = once(child, 'exit').then(([code]) => code as number)
  const url = async () => {
    await until(() => /http:\S+,/.test(said.stderr), 30_000)
    return /(http:\S+),/.exec(said.stderr)![1]!
  }
  return { child, said, ended, url }
}

const post = (url: string, code: string, headers: Record<string, string> = {}) =>
  fetch(`${url}/run`, { method: 'POST', headers, body: JSON.stringify({ type: 'python', solution: code }) })
const runningAt = async (url: string) => ((await (await fetch(`${url}/status`)).json()) as { running: number }).running

test('it says where it listens, serves with its limits, and a SIGTERM answers what is open before it ends with 143', async () => {
  const { child, said, ended, url } = start(['--timeout-ms', '4000', '--max-output-chars', '5', '--lanes', '2'])
  const at = await url()
  expect(said.stderr).toMatch(/^judge: http:\/\/127\.0\.0\.1:\d+, sandbox level \w+, 2 lanes\n$/)
  expect(await (await post(at, 'print("1234567")')).json()).toMatchObject({ stdout: '12345' })
  const open = post(at, 'import time; time.sleep(1.5); print("done")')
  await until(async () => (await runningAt(at)) === 1)
  child.kill('SIGTERM')
  expect(await (await open).json()).toMatchObject({ stdout: 'done\n', reason: '' })
  expect(await ended).toBe(143)
})

test('a second signal ends what runs, which is answered too', async () => {
  const { child, said, ended, url } = start(['--timeout-ms', '60000'])
  const at = await url()
  const open = post(at, 'import time; time.sleep(50)')
  await until(async () => (await runningAt(at)) === 1)
  child.kill('SIGINT')
  await until(() => said.stderr.includes('a second signal'))
  child.kill('SIGINT')
  expect(await (await open).json()).toMatchObject({ reason: 'internal_error' })
  expect(await ended).toBe(130)
})

test('--drain-ms bounds how long it answers what is open', async () => {
  const { child, ended, url } = start(['--timeout-ms', '60000', '--drain-ms', '300'])
  const at = await url()
  const open = post(at, 'import time; time.sleep(50)')
  await until(async () => (await runningAt(at)) === 1)
  child.kill('SIGTERM')
  expect(await (await open).json()).toMatchObject({ reason: 'internal_error' })
  expect(await ended).toBe(143)
})

test('an unsafe bind, an unmet level and a wrong option fail at start and say what to do', async () => {
  const bind = start(['--host', '0.0.0.0'])
  expect(await bind.ended).toBe(2)
  expect(bind.said.stderr).toMatch(
    /needs a token to listen on 0\.0\.0\.0\n {2}hint: give --token-file FILE.*\n {2}code: judge\.unsafe_bind/,
  )
  const option = start(['--timeout-ms', '0'])
  expect(await option.ended).toBe(2)
  expect(option.said.stderr).toContain('It must be a whole number')
  const memory = start(['--memory-mb', '16'])
  expect(await memory.ended).toBe(2)
  expect(memory.said.stderr).toContain('It must be a whole number from 32 to ')
})

test('a token file guards it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-judge-'))
  try {
    writeFileSync(join(folder, 'token'), 'abc123\n')
    const { url } = start(['--token-file', join(folder, 'token')])
    const at = await url()
    expect((await post(at, 'print(1)')).status).toBe(401)
    expect((await post(at, 'print(1)', { authorization: 'Bearer abc123' })).status).toBe(200)
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('with --bus, options of the executors and a bus that others cannot join are refused', async () => {
  const own = start(['--bus', 'kafka://127.0.0.1:1', '--lanes', '2'])
  expect(await own.ended).toBe(2)
  expect(own.said.stderr).toContain('--lanes cannot be used with --bus')
  const embedded = start(['--bus', 'lmdb:nowhere'])
  expect(await embedded.ended).toBe(2)
  expect(embedded.said.stderr).toContain('needs kafka://')
})
