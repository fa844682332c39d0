/**
 * The driver docker asks the engine to enforce a task's limit on disk space where the engine can, and refuses the task,
 * with the reason, where it cannot; `tasks check` says the same before a run. The engine is an HTTP server of this file,
 * which answers as one without pquota does.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { main } from '../../cli/main'
import { environmentSettings } from '../../config'
import { dockerDriver } from '../../environments'
import type { storageLimitMissing } from '../../environments/docker/storageLimit'
import { terminalTasks } from '../../recipes/terminal/tasks'
import { systemEffects } from '../../runtime/effects'

const missing: { why?: string } = {}
jest.mock('../../environments/docker/storageLimit', () => ({
  ...jest.requireActual('../../environments/docker/storageLimit'),
  storageLimitMissing: () => missing.why,
}))
const { storageLimitMissing: whyNot } = jest.requireActual<{ storageLimitMissing: typeof storageLimitMissing }>(
  '../../environments/docker/storageLimit',
)

const directory = mkdtempSync(join(tmpdir(), 'troupe-docker-storage-'))
const created: { HostConfig: { StorageOpt?: object } }[] = []
const engine = createServer(async (request, response) => {
  const body = (await request.toArray()).join('')
  const answer = (status: number, json: object) => response.writeHead(status).end(JSON.stringify(json))
  if (request.url?.endsWith('/info')) return answer(200, { Driver: 'overlay2', DockerRootDir: '/data' })
  if (request.url?.includes('/images/missing')) return answer(404, { message: 'No such image' })
  if (request.url?.includes('/images/')) return answer(200, { Id: 'sha256:1', Config: null })
  created.push(JSON.parse(body))
  return answer(400, { message: "--storage-opt is supported only for overlay over xfs with 'pquota' mount option" })
})
const address = `unix://${join(directory, 'engine')}`
const hostBefore = process.env.DOCKER_HOST
beforeAll(() => new Promise<void>(resolve => engine.listen(join(directory, 'engine'), resolve)))
beforeEach(() => {
  process.env.DOCKER_HOST = address
  delete missing.why
})
afterAll(() => {
  if (hostBefore === undefined) delete process.env.DOCKER_HOST
  else process.env.DOCKER_HOST = hostBefore
  engine.close()
  rmSync(directory, { recursive: true })
})

test('the engine is asked to hold the limit, and a task is refused with the switch where it does not', async () => {
  const driver = dockerDriver({ run: 'storage', fx: systemEffects, directory })
  const start = (storageMb?: number) =>
    driver.start({
      ...{ image: 'minimal', network: 'no-network' },
      limits: { memoryMb: 128, processes: 40, ...(storageMb === undefined ? {} : { storageMb }) },
    })
  const switches = expect.stringMatching(/--no-storage-limit of troupe tasks, --set environments.storage=no-limit/)
  await expect(start(512)).rejects.toMatchObject({
    code: 'environment.refused',
    message: expect.stringMatching(/storageMb.*pquota/),
    hint: switches,
  })
  await expect(start()).rejects.toThrow()
  expect(created.map(({ HostConfig }) => HostConfig.StorageOpt)).toEqual([{ size: '512M' }, undefined])
  missing.why = 'the reason'
  await expect(start(512)).rejects.toMatchObject({ message: expect.stringMatching(/: the reason$/), hint: switches })
  expect(created).toHaveLength(2)
  await driver.close()
})

const where = (found: readonly [Driver: string, DockerRootDir: string], at = address) => {
  const mounts = [
    '/dev/a / ext4 rw 0 0',
    '/dev/b /var/lib xfs rw,prjquota 0 0',
    '/dev/c /srv xfs rw,noquota 0 0',
    '/dev/d /var/lib/docker/volumes ext4 rw 0 0',
  ].join('\n')
  return whyNot({ Driver: found[0], DockerRootDir: found[1] }, at, mounts)
}

test("the limit can be held where the engine's data lies on xfs with project quotas, wherever that is", () => {
  expect(where(['overlay2', '/var/lib/docker'])).toBeUndefined()
  expect(where(['overlay2', '/var/lib/elsewhere/root'])).toBeUndefined()
  expect(where(['overlay2', '/srv/docker'])).toMatch(/data in \/srv\/docker lies on xfs mounted without pquota/)
  expect(where(['overlay2', '/home/docker'])).toMatch(/data in \/home\/docker lies on ext4/)
  expect(where(['overlay2', '/var/library'])).toMatch(/lies on ext4/)
  expect(where(['overlayfs', '/var/lib/docker'])).toMatch(/storage driver is overlayfs/)
  expect(where(['overlay2', '/var/lib/docker'], 'tcp://far:2375')).toMatch(
    /tcp:\/\/far:2375 may run on another machine/,
  )
})

function taskWith(toml: string): string {
  const task = mkdtempSync(join(directory, 'task-'))
  mkdirSync(join(task, 'tests'))
  writeFileSync(join(task, 'task.toml'), toml)
  writeFileSync(join(task, 'instruction.md'), 'Do it.')
  writeFileSync(join(task, 'tests/test.sh'), 'true')
  return task
}

async function refused(task: string): Promise<readonly string[]> {
  const written: string[] = []
  const write = jest.spyOn(process.stdout, 'write').mockImplementation(text => written.push(String(text)) > 0)
  await main(['tasks', 'check', '--driver', 'docker', '--json', task])
  write.mockRestore()
  process.exitCode = 0
  const { needs } = JSON.parse(written.join('')) as { needs: { what: string; refused?: string }[] }
  return needs.flatMap(({ what, refused: why }) => (why === undefined ? [] : [`${what}: ${why}`]))
}

test('`tasks check` and the start of a run ask the engine: is it there, has it the image, can it hold the limit', async () => {
  const settings = { ...environmentSettings(undefined), driver: 'docker' } as const
  const both = async (task: string) => {
    const error = await terminalTasks(task, '', settings).catch(thrown => String(thrown))
    return [(await refused(task)).join('\n'), typeof error === 'string' ? error : ''] as const
  }
  const limited = taskWith('[environment]\ndocker_image = "here:1"\nstorage_mb = 100\n')
  expect(await both(limited)).toEqual(['', ''])
  missing.why = 'the reason'
  for (const text of await both(limited))
    expect(text).toMatch(/100 MiB of disk: .*here \(the reason\); .*--no-storage-/)
  for (const text of await both(taskWith('[environment]\ndocker_image = "missing:1"\n')))
    expect(text).toMatch(/the Docker engine has no image missing:1: docker pull missing:1/)
  process.env.DOCKER_HOST = 'unix:///no/engine'
  for (const text of await both(limited))
    expect(text).toMatch(/no Docker engine answers at unix:\/\/\/no\/engine: .*ENOENT/)
})
