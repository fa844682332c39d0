/** Replay on a real broker: the same questions, the same answers, and nothing of the run or its topics is changed. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Verified } from '../../cli/replay/verifier'
import { runId } from '../../messages/ids'
import { openKafkaBus } from '../../runtime/bus'
import { troupe } from '../support/cli'
import { quickstartHistory, writeHistory } from '../support/histories'
import { type KafkaServers, startKafka } from '../support/kafka'

jest.setTimeout(240_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-kafka-replay-'))
const history = quickstartHistory()
let kafka: KafkaServers
beforeAll(async () => {
  kafka = await startKafka()
  const bus = await openKafkaBus(kafka.address)
  // The newest run is the one that began last, not the one whose name comes last.
  await writeHistory(bus, { ...history, run: runId('z-older') })
  await writeHistory(bus, { ...history, partitions: 2 })
  await bus.close()
})
afterAll(async () => {
  await kafka?.stop()
  rmSync(directory, { recursive: true, force: true })
})

const replay = (...args: readonly string[]) => troupe(['replay', ...args, '--bus', kafka.address], {}, directory).done

/** Every topic with where its partitions end. */
async function ends(): Promise<Record<string, number[]>> {
  const bus = await openKafkaBus(kafka.address)
  try {
    const found: Record<string, number[]> = {}
    for (const { topic, partitions } of await bus.listTopics()) {
      const of = Array.from({ length: partitions }, async (_, p) => (await bus.offsets(topic, p)).next)
      found[topic] = await Promise.all(of)
    }
    return found
  } finally {
    await bus.close()
  }
}

test('on Kafka the newest run is found by its topics, verified, listed, shown, replayed and judged, and stays as it is', async () => {
  const before = await ends()
  const verified = JSON.parse((await replay('verify', '--json')).stdout) as Verified
  expect(verified).toMatchObject({ ok: true, problems: [], run: history.run })
  expect(verified.facts).toBe(history.records.length)

  const listed = await replay('ls', '--json', '--limit', '1000')
  expect(listed.stdout.trim().split('\n')).toHaveLength(88)
  expect((await replay('show', '0001.0000/3')).stdout).toContain('turn 0')
  expect((await replay('run', '--all')).stdout).toContain('no decision differs')
  expect((await replay('run', '--all', '--run', 'z-older')).code).toBe(0)
  expect((await replay('roc', 's0001.0000')).stdout).toContain('selects as recorded')
  expect((await replay('lineage', '1')).stdout).toContain('step 1')
  const followed = await replay('follow', 's0001.0000', '--until-end', '--json')
  expect(followed.stdout).toContain('group.closed')
  const exported = await replay('export', 's0001.0000/3')
  expect(JSON.parse(exported.stdout)).toMatchObject({ trajectory: 's0001.0000/3', run: history.run })
  const missing = await replay('ls', '--run', 'nobody')
  expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('it holds history, z-older') })

  expect(await ends()).toEqual(before)
  expect(existsSync(join(directory, '.troupe'))).toBe(false)
})

test('an import on Kafka is a run of its own', async () => {
  const file = join(directory, 'all.jsonl')
  expect((await replay('export', '--all', '--run', history.run, '--out', file)).code).toBe(0)
  expect((await replay('import', file, '--as', 'copied')).stdout).toContain('88 trajectories')
  expect((await replay('verify', '--run', 'copied')).code).toBe(0)
  expect((await replay('import', file, '--as', 'copied')).stderr).toContain("there is a run 'copied' already")
})
