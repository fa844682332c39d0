/** Processes of a real run that are killed, at start-up and later: each is started again under its supervisor. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ActorStatus } from '../../messages/commands'
import { childrenKilled, wrongAfterKills } from '../support/childrenKilled'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-supervision-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test('whichever child is killed, as it starts or later, it is started again alone, and nothing is lost or counts twice', async () => {
  const options = { directory, times: 2, seed: 3, steps: 3 }
  const result = await childrenKilled(options)
  expect(wrongAfterKills(result, options)).toEqual([])
  const latest = new Map(
    result.telemetry.flatMap(message =>
      message.type === 'actor.status' ? [[message.actor, message as ActorStatus] as const] : [],
    ),
  )
  for (const actor of ['coordination/renderer', 'inference/local-0', 'learning/trainer']) {
    expect(latest.get(`root/${actor}`)).toMatchObject({ kind: 'process', state: 'stopped', restarts: 2 })
  }
  const undisturbed = ['tools/sandbox-0', 'coordination/scheduler', 'learning/curriculum', 'coordination/owner']
  const ofUndisturbed = undisturbed.map(
    name => [...latest.values()].find(({ actor }) => actor.startsWith(`root/${name}`))!,
  )
  expect(ofUndisturbed.filter(one => one?.restarts !== 0)).toEqual([])
})

test('when the fork server is killed, as it starts or later, its engine and trainer are started again, and nothing is lost', async () => {
  const options = { directory: join(directory, 'fork'), times: 2, seed: 1, steps: 2, kinds: ['forkServer' as const] }
  mkdirSync(options.directory)
  expect(wrongAfterKills(await childrenKilled(options), options)).toEqual([])
})
