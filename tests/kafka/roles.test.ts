/** A run whose parts are processes of their own, on a real broker: they are killed and stopped while it goes on. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Fact } from '../../messages/facts'
import type { Journal } from '../../runtime/journal/journal'
import { audit, everything } from '../support/audit'
import { type KafkaServers, startKafka } from '../support/kafka'
import { type RoleProcesses, roleProcesses } from '../support/roleProcesses'
import { smallRun } from '../support/smallRun'

jest.setTimeout(420_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-roles-'))
let kafka: KafkaServers
let processes: RoleProcesses
beforeAll(async () => {
  kafka = await startKafka()
  processes = roleProcesses(`${kafka.address}?sessionTimeoutMs=6000`, directory, 'r')
})
afterAll(async () => {
  await processes?.end()
  await kafka?.stop()
  rmSync(directory, { recursive: true, force: true })
})

type Of<T extends Fact['type']> = Extract<Fact, { type: T }>

async function facts<T extends Fact['type']>(journal: Journal, topic: 'trajectories' | 'learner' | 'runs', type: T) {
  const found: Of<T>[] = []
  for (let partition = 0; partition < (await journal.partitionsOf(topic)); partition++) {
    for (const { message } of await everything(journal, topic, partition)) {
      if (message.type === type) found.push(message as Of<T>)
    }
  }
  return found
}

test('coordinators, tools and a learner are killed or stopped, others go on for them, and all counts once', async () => {
  const steps = 4
  const learner = ['--partitions', '3', '--steps', `${steps}`, '--json', ...smallRun(300)]
  processes.start('learner-1', 'learner', ...learner)
  for (const name of ['coordinator-1', 'coordinator-2', 'coordinator-3']) processes.start(name, 'coordinator')
  processes.start('scheduler', 'scheduler')
  processes.start('inference', 'inference')
  for (const name of ['tools-1', 'tools-2']) processes.start(name, 'tools')
  processes.start('verifier', 'verifier')
  const journal = await processes.journal()
  const turns = () => facts(journal, 'trajectories', 'turn.completed')
  const claims = () => facts(journal, 'trajectories', 'partition.claimed')
  const completed = async () => (await facts(journal, 'learner', 'step.completed')).length

  // In the middle of the first step's rollouts.
  await processes.happens(async () => (await turns()).some(turn => turn.trajectory.startsWith('s0001')))
  processes.signal('coordinator-1', 'SIGKILL')
  processes.signal('tools-1', 'SIGKILL')
  processes.start('learner-2', 'learner', ...learner)
  await processes.happens(async () => (await completed()) >= 1)

  // An owner that hangs for longer than its session is replaced, wakes up, and takes part again.
  const before = (await claims()).length
  processes.signal('coordinator-2', 'SIGSTOP')
  await processes.happens(async () => (await claims()).length > before)
  processes.signal('coordinator-2', 'SIGCONT')

  await processes.happens(async () => (await facts(journal, 'learner', 'step.started')).length >= 2)
  processes.signal('learner-1', 'SIGKILL')
  await processes.happens(async () => (await facts(journal, 'learner', 'learner.claimed')).length === 2)
  await processes.happens(async () => (await facts(journal, 'runs', 'run.finished')).length > 0)

  const rest = ['learner-2', 'coordinator-2', 'coordinator-3', 'scheduler', 'inference', 'tools-2', 'verifier']
  for (const name of rest) expect(await processes.done(name)).toMatchObject({ code: 0 })
  const { stdout } = await processes.done('learner-2')
  expect(JSON.parse(stdout.trim().split('\n').at(-1)!)).toMatchObject({ type: 'summary', outcome: 'done', steps })
  const result = await audit(journal)
  const all = Array.from({ length: steps }, (_, n) => n + 1)
  expect(result.violations).toEqual([])
  expect(result).toMatchObject({ turnsTwice: [], lost: [], failed: 0, steps: all, started: all, deadLetters: 0 })
  expect(await facts(journal, 'runs', 'run.started')).toHaveLength(1)
  expect(await facts(journal, 'runs', 'run.finished')).toHaveLength(1)
  const executors = new Set((await facts(journal, 'trajectories', 'tool.completed')).map(call => call.executor))
  executors.delete(null)
  expect(executors.size).toBe(2)
})
