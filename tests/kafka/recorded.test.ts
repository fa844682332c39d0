/** A recorded run on Kafka answers: over the connection of the run that asks, and over one of its own. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openRecording, RecordedTurns, recordedEngine } from '../../backends/engines/recorded/recorded'
import { engineId, groupId, runId, trajectoryId } from '../../messages/ids'
import { openFileBlobs } from '../../runtime/bus/blobs'
import { openBus } from '../../runtime/bus/open'
import { openJournal } from '../../runtime/journal/openJournal'
import { createLog } from '../../runtime/log'
import { runDirectory } from '../../runtime/runDirectory'
import { requestOn } from '../backends/engines/contract'
import { type KafkaServers, startKafka } from '../support/kafka'
import { answered, asked, claim, prompted } from '../support/recordedLog'
import { refused } from '../support/refusal'

jest.setTimeout(120_000)

const log = createLog('test', { level: 'silent' })
const base = mkdtempSync(join(tmpdir(), 'troupe-recorded-kafka-'))
let kafka: KafkaServers
beforeAll(async () => {
  kafka = await startKafka()
})
afterAll(async () => {
  await kafka?.stop()
  rmSync(base, { recursive: true, force: true })
})

test('of the same broker by its name, large turns from its own blobs; of another by its address', async () => {
  const prompt = Int32Array.of(1, 2, 3)
  const trajectory = trajectoryId(groupId('g'), 0)
  // Over what a record holds: it lies in a blob.
  const tokens = new Int32Array(300_000).fill(7)
  const bus = await openBus(kafka.address)
  const files = runDirectory(base, runId('before'))
  const journal = openJournal(bus, await openFileBlobs(files.blobs), runId('before'))
  await journal.create(2)
  // Where the trajectory's facts go is where its owner has to have claimed.
  const [at] = await journal.append([prompted(trajectory, prompt)])
  await journal.appendTo(at!.partition, claim())
  const said = { tokens, logprobs: new Float32Array(tokens.length).fill(-1) }
  await journal.append([
    asked(trajectory, prompt, { epoch: 9 as never }),
    answered(trajectory, said, { finish: 'stop' }),
  ])

  const own = {
    ...{ run: runId('mine'), bus, blobs: await openFileBlobs(join(base, 'mine')) },
    directory: runDirectory(base, runId('mine')).root,
  }
  const sizes = { kvTokens: 1e6, blockTokens: 16, maxSequences: 8, contextTokens: 1e6, vocabulary: 320 }
  const recording = await openRecording('before', own, log)
  const turns = await RecordedTurns.of(recording.journal)
  const engine = recordedEngine({ id: engineId('r'), turns, decode: async () => '', ...sizes })
  const answer = await engine.generate(requestOn(prompt, { maxTokens: 400_000 }))
  expect(answer.tokens).toEqual(tokens)
  expect(answer.finish).toBe('stop')
  await recording.close()
  // The connection is still the asking run's.
  expect((await bus.listTopics()).length).toBeGreaterThan(0)
  expect((await refused(openRecording('nobody', own, log))).message).toMatch(/no recorded run 'nobody' in .*before/)

  const elsewhere = await openRecording(`before@${kafka.address}`, undefined, log)
  expect(await elsewhere.journal.partitionsOf('trajectories')).toBe(2)
  await elsewhere.close()
  await bus.close()
})
