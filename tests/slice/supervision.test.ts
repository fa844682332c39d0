/** Processes of a real run that are killed, at start-up and later: each is started again under its supervisor. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ActorStatus } from '../../messages/commands'
import { descendantsOf, endAll, messagesOf, type Running, troupe } from '../support/cli'
import { ofType } from '../support/facts'
import { smallRun } from '../support/smallRun'
import { until } from '../support/until'

jest.setTimeout(400_000)

const started: Running[] = []
const directory = mkdtempSync(join(tmpdir(), 'troupe-supervision-'))
afterEach(() => endAll(started))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

type Service = 'render' | 'engine' | 'trainer'

/** Processes of troupe_policy that serve this. */
function serving(service: Service, { process: { pid } }: Running): readonly number[] {
  return descendantsOf(pid!).filter(one => {
    try {
      return readFileSync(`/proc/${one}/cmdline`, 'utf8').includes(`--serve\0${service}\0`)
    } catch {
      return false // it has ended
    }
  })
}

async function kill(service: Service, run: Running): Promise<void> {
  await until(async () => serving(service, run).length > 0, 120_000, 5)
  for (const pid of serving(service, run)) process.kill(pid, 'SIGKILL')
}

const stepsOf = async () => ofType(await messagesOf(directory, 'r', 'learner'), 'step.completed').length

test('renderer, engine and trainer are started again alone when they are killed, at start-up and later', async () => {
  const args = ['train', 'quickstart', '--json', '--steps', '4', '--run', 'r', '--bus', `lmdb:${directory}`]
  const run = troupe([...args, ...smallRun(600)])
  started.push(run)
  for (const service of ['render', 'engine', 'trainer'] as const) await kill(service, run)
  await until(async () => (await stepsOf()) >= 1, 240_000)
  for (const service of ['render', 'engine', 'trainer'] as const) await kill(service, run)
  const { code, stderr } = await run.done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  expect(await stepsOf()).toBe(4)
  const states = (await messagesOf(directory, 'r', 'telemetry')).filter(
    (message): message is ActorStatus => message.type === 'actor.status',
  )
  const latest = new Map(states.map(state => [state.actor, state]))
  for (const actor of ['coordination/renderer', 'inference/local-0', 'learning/trainer']) {
    expect(latest.get(`root/${actor}`)).toMatchObject({ kind: 'process', state: 'stopped', restarts: 2 })
  }
  const undisturbed = ['tools/sandbox-0', 'coordination/scheduler', 'learning/curriculum', 'coordination/owner']
  const ofUndisturbed = undisturbed.map(
    name => [...latest.values()].find(({ actor }) => actor.startsWith(`root/${name}`))!,
  )
  expect(ofUndisturbed.filter(one => one?.restarts !== 0)).toEqual([])
})
