/** What is a server's death, and what only a bad minute: many questions at once, 429, a 5xx beside the engine's own word. */

import { type ServerHealthOptions, serverHealth } from '../../../../backends/engines/server/health'
import type { ServerHttp } from '../../../../backends/engines/server/http'
import { TroupeError } from '../../../../runtime/errors'

const timeoutMs = 60
const slow = 'slow'

/** A server that answers each question by what `says` holds. */
function rig(first: number | typeof slow, options: ServerHealthOptions = {}) {
  const server = { says: first, asked: 0 }
  const get = async () => {
    server.asked++
    if (server.says !== slow) return { status: server.says, text: '' }
    await new Promise(resolve => setTimeout(resolve, timeoutMs))
    throw new TroupeError('engine.timeout', { boundary: 'engine', retriable: true, message: 'too late' })
  }
  const http = { url: 'http://x', get } as Partial<ServerHttp> as ServerHttp
  const health = serverHealth(http, { everyMs: 600_000, timeoutMs, patience: 4, ...options })
  let isLost = false
  void health.lost.then(() => {
    isLost = true
  })
  return { server, health, isLost: () => isLost }
}

test('requests that fail together ask a slow server once: it keeps its time', async () => {
  const { server, health, isLost } = rig(slow)
  const together = () => Promise.all(Array.from({ length: 8 }, () => health.check()))
  for (let round = 1; round < 4; round++) {
    expect((await together()).every(error => error === undefined)).toBe(true)
    expect([server.asked, isLost()]).toEqual([round, false])
  }
  expect((await together()).map(error => (error as TroupeError).code)).toEqual(Array(8).fill('engine.timeout'))
  expect(isLost()).toBe(true)
  health.close()
})

test('a server that answers once in a while keeps all of its time', async () => {
  const { server, health, isLost } = rig(slow)
  for (let round = 1; round <= 9; round++) {
    server.says = round % 3 === 0 ? 200 : slow
    await health.check()
  }
  expect(isLost()).toBe(false)
  health.close()
})

test.each([[{}], [{ path: '/v1/models' }]])('429 is life, under %j', async options => {
  const { health } = rig(429, options)
  for (let round = 0; round < 9; round++) expect(await health.check()).toBeUndefined()
  health.close()
})

test('a 5xx of /health is the end of the engine, elsewhere it is given as much time as no answer', async () => {
  const dead = rig(503)
  expect(await dead.health.check()).toMatchObject({ code: 'engine.lost', message: expect.stringMatching(/503/) })
  const { health, isLost } = rig(503, { path: '/v1/models' })
  const beganAt = performance.now()
  expect(await health.check()).toBeUndefined()
  while ((await health.check()) === undefined) await new Promise(resolve => setTimeout(resolve, 5))
  // As if four questions had taken all of their time, the first of them at once.
  expect(performance.now() - beganAt).toBeGreaterThanOrEqual(3 * timeoutMs - 1)
  expect(isLost()).toBe(true)
  health.close()
})
