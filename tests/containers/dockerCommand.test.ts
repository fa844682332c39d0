/**
 * A command of the driver docker that cannot be killed: its result says that it still runs. The engine is a stand-in
 * whose command never ends, as one in uninterruptible sleep; the clock is the test's.
 */
import { PassThrough } from 'node:stream'
import { runCommand } from '../../environments/docker/command'
import { type Engine, EngineError } from '../../environments/docker/engine'
import { outcomeOf } from '../../environments/tools/bash'
import { toolResultText } from '../../kernels'

const frame = (text: string) => {
  const header = Buffer.alloc(8)
  header[0] = 1
  header.writeUInt32BE(text.length, 4)
  return Buffer.concat([header, Buffer.from(text)])
}

/** An engine whose commands write their first line and then do as `state` says. */
const engineOf = (state: () => object) =>
  ({
    call: async (method: string) => (method === 'POST' ? { Id: 'exec' } : state()),
    async hijack() {
      const socket = new PassThrough()
      socket.write(frame('p 7\nsome'))
      return socket
    },
  }) as unknown as Engine

async function run(state: () => object) {
  const options = { command: 'sleep 9', cwd: '/', timeoutMs: 1000, maxOutputBytes: 100 }
  const running = runCommand(engineOf(state), 'container', options)
  await jest.advanceTimersByTimeAsync(20_000)
  return running
}

beforeEach(() => void jest.useFakeTimers())
afterEach(() => void jest.useRealTimers())

test('the result of a command that outlived its kill says that it still runs, and so does what the model reads', async () => {
  const result = await run(() => ({ Running: true, ExitCode: null }))
  expect(result).toMatchObject({ status: 'timeout', signal: null, reason: expect.stringMatching(/still runs/) })
  expect(`${result.stdout}`).toBe('some')
  expect(toolResultText(outcomeOf(result, 1000))).toMatch(
    /timeout, not done within 1s\nstdout: some\nstderr: the command still runs/,
  )
})

test('a command that its deadline killed has no such reason, nor has one whose container died meanwhile', async () => {
  let asked = 0
  const killed = await run(() => ({ Running: asked++ < 8, ExitCode: 137 }))
  expect(killed).toMatchObject({ status: 'timeout', signal: 9 })
  expect(killed.reason).toBeUndefined()
  const lost = await run(() => {
    throw new EngineError(404, 'no such exec')
  })
  expect(lost.status).toBe('lost')
})
