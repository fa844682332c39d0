/** A whole run of the quickstart on a real broker, small: killed in the middle, it goes on from its turns. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Message, TopicName } from '../../messages'
import { runId } from '../../messages/ids'
import { openKafkaBus } from '../../runtime/bus'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openJournal } from '../../runtime/journal/openJournal'
import { endAll, isAlive, type Running, troupe as start } from '../support/cli'
import { descendantsOf } from '../support/descendants'
import { ofType } from '../support/facts'
import { type KafkaServers, startKafka } from '../support/kafka'
import { smallRun } from '../support/smallRun'
import { until } from '../support/until'

jest.setTimeout(400_000)

const small = smallRun(64) // a cold start that teaches next to nothing

const directory = mkdtempSync(join(tmpdir(), 'troupe-kafka-train-'))
const started: Running[] = []
let kafka: KafkaServers
beforeAll(async () => {
  kafka = await startKafka()
})
afterAll(async () => {
  await endAll(started)
  await kafka?.stop()
  rmSync(directory, { recursive: true, force: true })
})

/** Its files lie in the test's directory: a run on Kafka keeps models and checkpoints in .troupe of where it was started. */
function troupe(...args: readonly string[]): Running {
  const run = start(args, {}, directory)
  started.push(run)
  return run
}

const address = (): string => `${kafka.address}?sessionTimeoutMs=6000`

async function messagesOf(topic: TopicName): Promise<Message[]> {
  const bus = await openKafkaBus(kafka.address)
  try {
    const journal = openJournal(bus, memoryBlobs(), runId('r'))
    if (!(await bus.listTopics()).some(config => config.topic === `troupe.r.${topic}`)) return []
    const { oldest, next } = await journal.offsets(topic, 0)
    const messages: Message[] = []
    for await (const entries of journal.readTo(topic, 0, oldest, next)) {
      messages.push(...entries.map(entry => entry.message))
    }
    return messages
  } finally {
    await bus.close()
  }
}

test('a run on Kafka that is killed in the middle of a rollout goes on from its turns, and each counts once', async () => {
  const args = ['train', 'quickstart', '--json', '--bus', address(), ...small]
  const run = troupe(...args, '--run', 'r', '--steps', '400') // it must not end before it is killed
  await until(
    async () => {
      if (run.process.exitCode !== null) throw new Error((await run.done).stderr)
      const turns = ofType(await messagesOf('trajectories'), 'turn.completed')
      return turns.filter(turn => turn.trajectory.startsWith('s0002')).length >= 4
    },
    300_000,
    500,
  )
  // Two processes would share the groups' partitions, and neither would see the whole run.
  const second = await troupe(...args, '--resume', 'r').done
  expect(second).toMatchObject({ code: 1, stderr: expect.stringContaining("another process drives the run 'r'") })
  const children = descendantsOf(run.process.pid!)
  run.process.kill('SIGKILL')
  await run.done
  await until(() => !children.some(isAlive), 10_000)

  const before = await messagesOf('trajectories')
  const done = new Set(ofType(before, 'turn.completed').map(turn => `${turn.trajectory}#${turn.turn}`))
  const taken = await troupe(...args, '--run', 'r').done
  expect(taken).toMatchObject({ code: 2, stderr: expect.stringContaining("run 'r' exists already") })
  const missing = await troupe(...args, '--resume', 'nobody').done
  expect(missing).toMatchObject({ code: 2, stderr: expect.stringMatching(/no run 'nobody' in kafka:.*runs there: r/) })

  const steps = ofType(await messagesOf('learner'), 'step.completed').length + 2
  const { code, stdout, stderr } = await troupe(...args, '--resume', 'r', '--steps', `${steps}`).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const after = await messagesOf('trajectories')
  expect(after.slice(0, before.length)).toEqual(before) // the log of a run only grows
  const asked = ofType(before, 'turn.asked').length
  for (const ask of ofType(after, 'turn.asked').slice(asked))
    expect(done).not.toContain(`${ask.trajectory}#${ask.turn}`)
  const turns = ofType(after, 'turn.completed').map(turn => `${turn.trajectory}#${turn.turn}`)
  expect(new Set(turns).size).toBe(turns.length)
  const completed = ofType(await messagesOf('learner'), 'step.completed').map(step => step.step)
  expect(completed).toEqual(Array.from({ length: steps }, (_, n) => n + 1))
  expect(ofType(await messagesOf('runs'), 'run.resumed')).toHaveLength(1)
  expect(await messagesOf('dead-letters')).toEqual([])
  expect(JSON.parse(stdout.trim().split('\n').at(-1)!)).toMatchObject({ type: 'summary', outcome: 'done', steps })
})
