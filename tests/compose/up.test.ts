/**
 * `docker compose up` under a real engine: builds the image and runs a small quickstart to its end, through the death of every
 * process and a `down` and `up` in the middle. Without an engine, or before the image's first build, it is skipped
 * with the reason.
 *
 * What differs from the file as it stands: the project's name, the ports on the host, and the size of the run, by a second
 * compose file. Base images and the package index are those of the environment (NODE_IMAGE, TORCH_INDEX of .env.example).
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { composeFile, composeRoot } from '../support/composeFile'
import { buildsImage, dockerMissing, dockerOutput, endEngine } from '../support/dockerCompose'
import { smallRun } from '../support/smallRun'

jest.setTimeout(3_600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-compose-'))
const small = join(directory, 'small.yml')
const project = `troupe-test-${process.pid}`
const ours = Object.entries(composeFile().services).filter(([, { image }]) => image.startsWith('troupe:'))
const roles = ours.map(([name]) => name).filter(name => name !== 'image')
const image = ours[0]![1].image
const missing = dockerMissing(image)
let variables: Record<string, string> = {}

const compose = (...words: string[]) =>
  dockerOutput(['compose', '-p', project, '-f', 'docker-compose.yml', '-f', small, ...words], variables)

interface Container {
  readonly ID: string
  readonly Service: string
  readonly State: string
  readonly ExitCode: number
  readonly Publishers?: readonly { readonly URL: string; readonly PublishedPort: number }[] | null
}

const containers = async (): Promise<Container[]> =>
  (await compose('ps', '-a', '--format', 'json'))
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line))

const inspect = async (id: string, format: string) => (await dockerOutput(['inspect', '-f', format, id])).trim()

/** Runs a program in a service's container; a container that is just being restarted is asked again. */
async function inside(service: string, ...words: string[]): Promise<string> {
  for (let tries = 0; ; tries++)
    try {
      return await compose('exec', '-T', service, ...words)
    } catch (thrown) {
      if (tries > 60) throw thrown
      await new Promise(resolve => setTimeout(resolve, 1000))
    }
}

const lines = async (service: string) => compose('logs', '--no-color', '--no-log-prefix', service)

async function until<T>(what: string, limitMs: number, look: () => Promise<T | undefined | false>): Promise<T> {
  const began = performance.now()
  for (;;) {
    const found = await look()
    if (found !== undefined && found !== false) return found
    if (performance.now() - began > limitMs)
      throw new Error(
        `${what}: not within ${limitMs / 1000} s\n${(await compose('logs', '--tail', '20')).slice(-6000)}`,
      )
    await new Promise(resolve => setTimeout(resolve, 1000))
  }
}

async function freePort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise(resolve => server.once('listening', resolve))
  const { port } = server.address() as { port: number }
  await new Promise(resolve => server.close(resolve))
  return String(port)
}

if (missing !== undefined) {
  console.warn(`docker compose up is not tested: ${missing}`)
  test.skip(`docker compose up: ${missing}`, () => {})
} else {
  beforeAll(async () => {
    const settings = smallRun(64).map(word => (word.startsWith('reward.file=') ? 'reward.file=/parity.py' : word))
    const command = composeFile().services.learner!.command!.map(String)
    const parity = { volumes: [`${join(composeRoot, 'tests/support/parity.py')}:/parity.py:ro`] }
    const services = Object.fromEntries(roles.map(name => [name, { ...parity }]))
    writeFileSync(
      small,
      stringify({
        services: { ...services, learner: { ...parity, command: [...command, '--json', '--steps', '4', ...settings] } },
      }),
    )
    variables = { KAFKA_PORT: await freePort() }
    const began = performance.now()
    if (buildsImage) await compose('build')
    const size = Number(await dockerOutput(['image', 'inspect', '-f', '{{.Size}}', image]))
    console.info(`image: ${(size / 1e9).toFixed(2)} GB, built in ${Math.round((performance.now() - began) / 1000)} s`)
  })
  afterAll(async () => {
    await compose('down', '-v', '--timeout', '5')
    rmSync(directory, { recursive: true, force: true })
    await endEngine()
  })

  test('every role starts, on loopback alone, with the sandbox at the level that docs/sandbox.md says', async () => {
    await compose('up', '-d', '--no-build')
    const all = await containers()
    expect(all.map(({ Service }) => Service).sort()).toEqual(['image', 'kafka', 'tools', ...roles].sort())
    const published = all.flatMap(({ Publishers }) => Publishers ?? []).filter(({ PublishedPort }) => PublishedPort > 0)
    expect(published.length).toBeGreaterThan(0)
    for (const { URL } of published) expect(URL).toBe('127.0.0.1')
    const probe = `const { openSandbox } = require('/opt/troupe/dist/sandbox')
      openSandbox({}).then(async sandbox => {
        const { stdout } = await sandbox.run({ id: 'x', code: 'print(6 * 7)' })
        const capabilities = /CapEff:\\s*(\\S+)/.exec(require('fs').readFileSync('/proc/self/status', 'utf8'))[1]
        console.log(JSON.stringify([sandbox.level, String(Buffer.from(stdout)), process.getuid(), Number('0x' + capabilities)]))
        await sandbox.close()
      })`
    const levelIn = async (service: string) => JSON.parse(await inside(service, 'node', '-e', probe))
    expect(await levelIn('tools')).toEqual(['full', '42\n', 10001, 0])
    expect(await levelIn('scheduler')).toEqual(['degraded', '42\n', 10001, 0])
  })

  test("kill -9 of the process in each container is healed, and the learner's metrics answer another container afterwards", async () => {
    await until('the run began', 300_000, async () => /learner of run .*: active/.test(await lines('learner')))
    const victims = (await containers()).filter(({ Service }) => Service !== 'image')
    for (const { ID, Service, State } of victims) {
      expect({ Service, State }).toEqual({ Service, State: 'running' })
      // From outside: the first process of a container cannot be killed from inside.
      if (Service === 'kafka') process.kill(Number(await inspect(ID, '{{.State.Pid}}')), 'SIGKILL')
      else await dockerOutput(['exec', ID, 'sh', '-c', 'kill -9 $(cat /proc/1/task/1/children)'])
    }
    for (const { ID, Service } of victims)
      await until(`${Service} was started again`, 120_000, async () => {
        const [restarts, state] = (await inspect(ID, '{{.RestartCount}} {{.State.Status}}')).split(' ')
        return Number(restarts) > 0 && state === 'running'
      })
    const fetched = `fetch('http://learner:9464/metrics').then(async r => console.log(r.status, (await r.text()).includes('troupe_step')))`
    const scrape = () => compose('exec', '-T', 'scheduler', 'node', '-e', fetched).catch(() => '')
    await until('the metrics answer', 300_000, async () => (await scrape()) === '200 true\n')
  })

  test('down and up again goes on with the run; all roles end with 0, and its log is sound', async () => {
    await compose('down', '--timeout', '60')
    expect(await containers()).toEqual([])
    await compose('up', '-d', '--no-build')
    const ended = await until('all roles ended', 900_000, async () => {
      const all = (await containers()).filter(({ Service }) => roles.includes(Service))
      return all.every(({ State }) => State === 'exited') && all
    })
    expect(ended.map(({ Service, ExitCode }) => [Service, ExitCode]).sort()).toEqual(
      ['tools', ...roles].sort().map(name => [name, 0]),
    )
    const summary = (await lines('learner')).split('\n').find(line => line.includes('"type":"summary"'))
    expect(JSON.parse(summary!)).toMatchObject({ outcome: 'done', steps: 4 })
    const place = ['--bus', 'kafka://kafka:9092', '--dir', '/runs']
    const verified = await compose(
      'run',
      '--rm',
      '--no-deps',
      'learner',
      'replay',
      'verify',
      '--run',
      'quickstart',
      ...place,
    )
    expect(verified).toMatch(/sound/)
  })
}
