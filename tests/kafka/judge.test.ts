/** `troupe judge --bus` over a real broker, with executors of `troupe execute` in processes of their own. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { resolve } from 'node:path'
import type { Verdict } from '../../sandbox/judge/verdict'
import { type KafkaServers, startKafka } from '../support/kafka'
import { until } from '../support/until'

jest.setTimeout(120_000)
const bin = resolve(__dirname, '../../cli/bin.js')
const children: ChildProcess[] = []
let kafka: KafkaServers
beforeAll(async () => {
  kafka = await startKafka()
})
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL')
  await kafka?.stop()
})

async function start(command: string, ready: RegExp, ...args: readonly string[]) {
  const child = spawn(process.execPath, [bin, command, '--bus', kafka.address, ...args], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  children.push(child)
  let said = ''
  child.stderr.setEncoding('utf8').on('data', text => {
    said += text
  })
  await until(() => ready.test(said) || child.exitCode !== null, 60_000)
  const ended = once(child, 'exit').then(([code]) => code as number)
  return { child, said: () => said, found: ready.exec(said)?.[1], ended }
}

test('a burst over two executors is answered once each, although one is killed in the middle', async () => {
  const front = await start('judge', /(http:\S+),/, '--port', '0', '--queue-wait-ms', '60000')
  const [first, second] = await Promise.all(
    ['4', '4'].map(lanes => start('execute', /joined 'judge'/, '--lanes', lanes)),
  )
  const ask = async <T>(path: string, body?: object) =>
    (await (await fetch(`${front.found}${path}`, body && { method: 'POST', body: JSON.stringify(body) })).json()) as T
  await until(async () => (await ask<{ num_workers: number }>('/status')).num_workers >= 8)
  const calls = 200
  const submissions = Array.from({ length: calls }, (_, n) => ({
    type: 'python',
    solution: `import time; time.sleep(0.05); print(${n})`,
  }))
  const batch = ask<{ results: readonly Verdict[] }>('/run/batch', { type: 'batch', submissions })
  await until(async () => (await ask<{ answered: number }>('/status')).answered >= calls / 4)
  second!.child.kill('SIGKILL')
  const { results } = await batch
  expect(results.map(({ stdout }) => stdout)).toEqual(submissions.map((_, n) => `${n}\n`))
  expect(await ask('/status')).toMatchObject({ answered: calls, internal_errors: 0, queue_timeouts: 0 })

  const other = await start('execute', /config.other_environment/, '--python', 'python3', '--preload', 'std')
  expect([await other.ended, other.said()]).toEqual([2, expect.stringContaining('config.other_environment')])
  first!.child.kill('SIGTERM')
  expect(await first!.ended).toBe(143)
  front.child.kill('SIGTERM')
  expect(await front.ended).toBe(143)
})
