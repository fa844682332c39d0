/** Replay on a real broker: the same questions, the same answers, and nothing of the run or its topics is changed. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Kafka, logLevel } from 'kafkajs'
import { writeManyTrajectories } from '../../bench/support/manyTrajectories'
import type { Overview, RunLine } from '../../dashboard/api'
import { openDashboard } from '../../dashboard/server/openDashboard'
import { runId } from '../../messages/ids'
import type { Verification } from '../../replay/verify/verification'
import { openBus, openKafkaBus } from '../../runtime/bus'
import { memoryBlobs, openFileBlobs } from '../../runtime/bus/blobs'
import { parseKafkaAddress } from '../../runtime/bus/kafka/address'
import { openJournal } from '../../runtime/journal/openJournal'
import { runDirectory } from '../../runtime/runDirectory'
import { troupe } from '../support/cli'
import { quickstartHistory, writeHistory } from '../support/histories'
import { type KafkaServers, startKafka } from '../support/kafka'
import { until } from '../support/until'

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

const replay = (...args: readonly string[]) =>
  troupe(['replay', ...args, '--bus', kafka.address], { TROUPE_HOME: join(directory, 'home') }, directory).done

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
  const verified = JSON.parse((await replay('verify', '--json')).stdout) as Verification
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
  expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('runs there: history, z-older') })

  expect(await ends()).toEqual(before)
  expect(existsSync(join(directory, '.troupe'))).toBe(false)
})

test('a run of which a record cannot be read is simulated without it, and nothing is written to the run', async () => {
  const bus = await openKafkaBus(kafka.address)
  const torn = { topic: 'troupe.torn.trajectories', key: 'k', headers: {}, value: Buffer.from('of another program') }
  await writeHistory(bus, { ...history, run: runId('torn') }, [torn])
  await bus.close()
  const before = await ends()
  const model = join(directory, 'model.json')
  const args = ['simulate', '--calibrate', 'torn', '--engine-model', model, '--bus', kafka.address]
  const { code, stderr } = await troupe(args, {}, directory).done
  expect({ code, stderr }).toMatchObject({
    code: 0,
    stderr: expect.stringMatching(/skipped the unreadable record troupe\.torn\.traj/),
  })
  expect(stderr.match(/skipped the unreadable record/g)).toHaveLength(1)
  expect(await ends()).toEqual(before)
  const reader = await openBus(kafka.address, { mode: 'read' })
  const refused = { code: 'bus.read_only' }
  await expect(reader.append([torn])).rejects.toMatchObject(refused)
  await expect(reader.createTopics([])).rejects.toMatchObject(refused)
  await reader.close()
})

test('an import on Kafka is a run of its own', async () => {
  const file = join(directory, 'all.jsonl')
  expect((await replay('export', '--all', '--run', history.run, '--out', file)).code).toBe(0)
  expect((await replay('import', file, '--as', 'copied')).stdout).toContain('88 trajectories')
  expect((await replay('verify', '--run', 'copied')).code).toBe(0)
  expect((await replay('import', file, '--as', 'copied')).stderr).toContain("run 'copied' exists already")
})

test("a run on Kafka whose files lie in a directory of the user's is read with them: --dir", async () => {
  const dir = join(directory, 'files')
  const run = runId('filed')
  const bus = await openKafkaBus(kafka.address)
  await writeHistory(bus, { ...history, run })
  const journal = openJournal(bus, await openFileBlobs(runDirectory(dir, run).blobs, 'write'), run)
  await journal.append([{ type: 'stage.changed', at: 0, stage: 'late', step: 9, reason: 'x'.repeat(2 ** 20) }])
  await bus.close()
  expect((await replay('verify', '--run', run)).code).toBe(1)
  expect(await replay('verify', '--run', run, '--dir', dir)).toMatchObject({ code: 0, stderr: '' })
})

test('a large run on Kafka is listed by its index, which takes in what came since and is dropped with its topics', async () => {
  const run = runId('large')
  const write = async (steps: number) => {
    const bus = await openKafkaBus(kafka.address)
    const journal = openJournal(bus, memoryBlobs(), run)
    await journal.create(2)
    const written = await writeManyTrajectories(journal, { steps, groups: 22, groupSize: 16 })
    await bus.close()
    return written.trajectories
  }
  const ls = () => replay('ls', '--json', '--limit', '10000', '--run', run)
  const count = await write(4)
  const first = await ls()
  expect(first.stderr).toMatch(/^index made: 1408 trajectories/)
  const second = await ls()
  expect(second.stderr).toBe('')
  expect(second.stdout).toBe(first.stdout)
  expect(second.stdout.trim().split('\n')).toHaveLength(count)
  const shown = await replay('show', '0003.0007/5', '--json', '--run', run)
  expect(shown.stdout.trim().split('\n').length).toBeGreaterThan(8)
  expect(shown.stdout).toContain('"type":"group.selected"')

  // The same facts once more: known trajectories, but more records and another claim.
  await write(1)
  expect((await ls()).stderr).toBe('')
  await withoutTopics(run)
  await write(5)
  const anew = await ls()
  expect(anew.stderr).toContain('index rebuilt')
  expect(anew.stdout.trim().split('\n')).toHaveLength(1760)
})

test('the dashboard lists the runs of a Kafka bus, opens one, and follows a fact that is written meanwhile', async () => {
  const dashboard = await openDashboard({ bus: kafka.address, directory, host: '127.0.0.1', port: 0 })
  const runs = `${dashboard.url}api/runs`
  try {
    const lines = (await (await fetch(runs)).json()) as readonly RunLine[]
    expect(lines.map(one => one.run)).toEqual(expect.arrayContaining(['z-older', history.run]))
    const overview = (await (await fetch(`${runs}/${history.run}`)).json()) as Overview
    expect(overview).toMatchObject({ run: history.run, recipe: 'quickstart', faults: [] })
    expect(overview.command).toContain(`--bus ${kafka.address}`)
    const ending = new AbortController()
    const stream = await fetch(`${runs}/${history.run}/stream?from=${overview.cursor}`, { signal: ending.signal })
    const bus = await openKafkaBus(kafka.address)
    const alarm = { type: 'alarm.raised', at: 1, alarm: 'written-meanwhile', message: 'm' } as const
    await openJournal(bus, memoryBlobs(), runId(history.run)).append([alarm])
    await bus.close()
    let read = ''
    for await (const chunk of stream.body as unknown as AsyncIterable<Uint8Array>) {
      read += Buffer.from(chunk).toString()
      if (read.includes('written-meanwhile')) break
    }
    ending.abort()
    expect(read).toContain('written-meanwhile')
    const then = (await (await fetch(`${runs}/${history.run}`)).json()) as Overview
    expect(then.alarms.map(one => one.alarm)).toContain('written-meanwhile')
  } finally {
    await dashboard.close()
  }
})

async function withoutTopics(run: string): Promise<void> {
  const { brokers } = parseKafkaAddress(kafka.address)
  const admin = new Kafka({ brokers: [...brokers], logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  const names = (await admin.listTopics()).filter(name => name.startsWith(`troupe.${run}.`))
  await admin.deleteTopics({ topics: names })
  await until(async () => (await admin.listTopics()).every(name => !names.includes(name)))
  await admin.disconnect()
}
