/** Sessions of the gateway under `replay lineage`, `show` and `verify`: nothing is claimed of them that was not checked. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runId } from '../../messages/ids'
import type { Lineage } from '../../replay/learning/lineage'
import type { Verification } from '../../replay/verify/verification'
import { openTroupe } from '../../runtime/embed'
import { runDirectory } from '../../runtime/runDirectory'
import { openTestGateway, type TestGateway } from '../support/gateway/openTestGateway'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-captured-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** Writes a run by requests to a gateway. Returns a function that runs `troupe replay` over it. */
async function recorded(run: string, use: (gateway: TestGateway) => Promise<void>) {
  const files = runDirectory(directory, runId(run))
  mkdirSync(files.log, { recursive: true })
  const log = await openTroupe({ bus: `lmdb:${files.log}`, run })
  const gateway = await openTestGateway((_context, turn) => `answer ${turn}`, { over: log })
  try {
    await use(gateway)
  } finally {
    await gateway.close()
    await log.close()
  }
  return (...args: readonly string[]) => troupeHere(['replay', ...args, '--run', run, '--bus', `lmdb:${directory}`])
}

const messages = [{ role: 'user', content: 'go' }]
const ask = (gateway: TestGateway, key: string) =>
  gateway.post('/v1/chat/completions', { model: 'm', messages }, { authorization: `Bearer ${key}` })

test('a fork that the gateway made names its parent, and the parent its fork; neither has a prompt of no tokens', async () => {
  const replay = await recorded('forked', async gateway => {
    await ask(gateway, 'me')
    const forked = await gateway.post('/troupe/v1/sessions/agent.0000/0/fork', { call_id: 0 })
    await ask(gateway, ((await forked.json()) as { key: string }).key)
  })
  const lineage = async (id: string) => {
    const { stdout } = await replay('lineage', id, '--json')
    return JSON.parse(stdout) as Lineage
  }
  expect(await lineage('agent.0000/0')).toMatchObject({ isCaptured: true, forkOf: null, forks: ['agent.0001/0'] })
  expect(await lineage('agent.0001/0')).toMatchObject({
    forkOf: { parent: 'agent.0000/0', run: null, turn: 1 },
    forks: [],
  })
  const { stdout } = await replay('lineage', 'agent.0001/0')
  expect(stdout).toContain('│   forked from agent.0000/0 at call 1\n1 trajectory of 1 group, 0 calls;')
  const fork = (await replay('show', 'agent.0001/0')).stdout
  expect(fork).toContain('parent: agent.0000/0\n')
  expect(fork).not.toContain('prompt:')
  expect((await replay('show', 'agent.0000/0')).stdout).not.toContain('parent:')
})

test('a reward before the end counts by its repetition; one that no end follows is listed, and unchecked contexts are counted', async () => {
  const replay = await recorded('rewarded', async gateway => {
    for (const slot of [0, 1]) {
      const made = await gateway.post('/troupe/v1/sessions', { group: 'g', group_size: 2, slot })
      await ask(gateway, ((await made.json()) as { key: string }).key)
      await gateway.post(`/troupe/v1/sessions/g%2F${slot}/reward`, { value: 1 })
    }
    await gateway.post('/troupe/v1/sessions/g%2F0/end', { outcome: 'done' })
  })
  const said = JSON.parse((await replay('verify', '--json')).stdout) as Verification
  expect(said).toMatchObject({ ok: true, contexts: 0, sampledShare: 0, capturedCalls: 2, turnsOfCalls: 0 })
  expect(said.counted).toMatchObject({ trajectories: 2, turns: 2, rewards: 1 })
  expect(said.ignored).toEqual({ "reward.assigned before its session's end, not repeated after it": 1 })
  expect((await replay('verify')).stdout).toContain(
    'contexts rebuilt: 0 (0 % of the trajectories); not checked: the contexts of 2 captured calls\n',
  )
})
