/** Replay on a real broker: the same questions, the same answers, and nothing of the run or its topics is changed. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Kafka, logLevel } from 'kafkajs'
import { writeManyTrajectories } from '../../bench/support/manyTrajectories'
import type { Overview, Paged, RunLine, TrajectoryLine } from '../../dashboard/api'
import { openDashboard } from '../../dashboard/server/openDashboard'
import { runId } from '../../messages/ids'
import type { Verification } from '../../replay/verify/verification'
import { openBus, openKafkaBus } from '../../runtime/bus'
import { memoryBlobs, openFileBlobs } from '../../runtime/bus/blobs'
import { parseKafkaAddress } from '../../runtime/bus/kafka/address'
import { openJournal } from '../../runtime/journal/openJournal'
import { runDirectory } from '../../runtime/runDirectory'
import { firstPart, rest } from '../dashboard/grownHistory'
import { streamed } from '../support/dashboard/streamed'
import { quickstartHistory, recordsOf, saveHistory, writeHistory } from '../support/histories'
import { type KafkaServers, startKafka } from '../support/kafka'
import { troupeHere } from '../support/troupeHere'
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
  troupeHere(['replay', ...args, '--bus', kafka.address], { TROUPE_HOME: join(directory, 'home') }, directory)

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
  const { code, stderr } = await troupeHere(args, {}, directory)
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

/** Fetches all that a page of the dashboard shows of a run, by path; a list is fetched page by page, to its end. */
async function answersOf(url: string, run: string): Promise<Readonly<Record<string, unknown>>> {
  const answers: Record<string, unknown> = {}
  const ask = async <T>(path: string): Promise<T> => {
    const response = await fetch(`${url}api/runs/${run}${path}`)
    answers[path] = await response.json()
    expect([path, response.status]).toEqual([path, 200])
    return answers[path] as T
  }
  const { trajectories } = await ask<Overview>('')
  const seen: string[] = []
  for (let offset = 0; offset < trajectories; offset += 40) {
    const { rows } = await ask<Paged<TrajectoryLine>>(`/trajectories?offset=${offset}&limit=40`)
    seen.push(...rows.map(one => one.trajectory))
  }
  expect(new Set(seen).size).toBe(trajectories)
  for (const path of ['/trajectories?selection=kept&sort=reward', '/groups', '/groups/s0001.0000', '/lanes?step=2'])
    await ask(path)
  for (const path of ['', '/tokens?limit=4000', '/events']) await ask(`/trajectories/s0001.0000/3${path}`)
  for (const path of ['/why', '/why?id=s0002.0001', '/log/trajectories/0?offset=300&limit=100', '/cluster'])
    await ask(path)
  return answers
}

test('the dashboard answers every question about a finished run on Kafka as about the same run on lmdb', async () => {
  const beside = join(directory, 'beside')
  await saveHistory(beside, { ...history, run: runId('z-older') })
  const answers = []
  for (const bus of [kafka.address, `lmdb:${beside}`]) {
    const dashboard = await openDashboard({ bus, host: '127.0.0.1', port: 0 })
    const found = await answersOf(dashboard.url, 'z-older')
    await dashboard.close()
    // A record has the time at which it was appended, and a command names its bus.
    const isOfBus = (name: string) => ['lastAt', 'lastPlace'].includes(name)
    answers.push(JSON.parse(JSON.stringify(found, (name, value) => (isOfBus(name) ? 0 : value)).replaceAll(bus, 'BUS')))
  }
  expect(answers[0]).toEqual(answers[1])
  expect(answers[0]['']).toMatchObject({ state: 'done', trajectories: 88, faults: [] })
})

test('a run that is live on Kafka is followed to its end by several pages, also over cut connections: each fact once', async () => {
  const run = runId('grown')
  const bus = await openKafkaBus(kafka.address)
  const dashboard = await openDashboard({ bus: kafka.address, directory, host: '127.0.0.1', port: 0 })
  const overview = async () => (await (await fetch(`${dashboard.url}api/runs/${run}`)).json()) as Overview
  try {
    await writeHistory(bus, { ...firstPart, run })
    const lines = (await (await fetch(`${dashboard.url}api/runs`)).json()) as readonly RunLine[]
    expect(lines).toEqual(
      expect.arrayContaining([expect.objectContaining({ run, state: 'live', recipe: 'quickstart' })]),
    )
    const before = await overview()
    expect(before.command).toContain(`--bus ${kafka.address}`)
    const isStreamed = ({ topic }: { readonly topic: string }) => ['runs', 'learner', 'trajectories'].includes(topic)
    const wanted = rest.records.filter(isStreamed).length
    const follow = async (cuts: boolean) => {
      const places: string[] = []
      let id = before.cursor
      while (places.length < wanted) {
        const piece = await streamed(dashboard.url, run, id, cuts ? 1 : wanted - places.length)
        places.push(...piece.facts.map(fact => fact.place))
        id = piece.id
      }
      return { places, id }
    }
    const readers = [follow(false), follow(true), follow(true)]
    const appended = recordsOf({ ...rest, run })
    for (let at = 0; at < appended.length; at += 20) await bus.append(appended.slice(at, at + 20))
    const followed = await Promise.all(readers)
    await until(async () => (await overview()).state === 'done')
    const after = await overview()
    for (const { places, id } of followed) {
      expect(new Set(places).size).toBe(wanted)
      expect([places.length, id]).toEqual([wanted, after.cursor])
    }
    expect(after).toMatchObject({ trajectories: 88, running: 0, faults: [] })
  } finally {
    await dashboard.close()
    await bus.close()
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
