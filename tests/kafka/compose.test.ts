/** The commands of docker-compose.yml, each started by hand against a real broker: together they train the quickstart. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endAll, type Running, troupe } from '../support/cli'
import { composeFile } from '../support/composeFile'
import { type KafkaServers, startKafka } from '../support/kafka'
import { smallRun } from '../support/smallRun'

jest.setTimeout(420_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-compose-'))
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

test('every service of the compose file runs its part, and ends with 0 when the run is over', async () => {
  const replaced: Readonly<Record<string, string>> = {
    'kafka://kafka:9092': kafka.address,
    '/runs': directory,
    '0.0.0.0:9464': '127.0.0.1:0', // any port
  }
  const names: string[] = []
  for (const [name, { image, command, deploy }] of Object.entries(composeFile().services)) {
    if (!image.startsWith('troupe:') || name === 'image') continue
    const words = command!.map(word => replaced[String(word)] ?? String(word))
    const smaller = name === 'learner' ? ['--json', '--steps', '1', ...smallRun(64)] : []
    for (let k = 0; k < Number(deploy?.replicas ?? 1); k++) {
      names.push(name)
      started.push(troupe([...words, ...smaller], {}, directory))
    }
  }
  expect(names.sort()).toEqual(['coordinator', 'inference', 'learner', 'scheduler', 'tools', 'tools', 'verifier'])
  // One that fails leaves the others waiting: whichever ends first says how it went.
  const first = await Promise.race(started.map(run => run.done))
  expect({ code: first.code, stderr: first.stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const ended = await Promise.all(started.map(run => run.done))
  for (const { code, stderr } of ended) expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const lines = ended.flatMap(({ stdout }) => stdout.trim().split('\n')).filter(line => line.startsWith('{'))
  expect(lines.map(line => JSON.parse(line)).find(line => line.type === 'summary')).toMatchObject({
    outcome: 'done',
    steps: 1,
  })
})
