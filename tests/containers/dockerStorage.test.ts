/**
 * The driver docker asks the engine to enforce a task's limit on disk space where the engine can, and refuses the task
 * where it cannot. The engine is an HTTP server of this file, which answers as one without pquota does.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { dockerDriver } from '../../environments'
import { hasProjectQuota } from '../../environments/docker/storageLimit'
import { systemEffects } from '../../runtime/effects'

jest.mock('../../environments/docker/storageLimit', () => ({
  ...jest.requireActual('../../environments/docker/storageLimit'),
  canLimitStorage: () => true,
}))

const directory = mkdtempSync(join(tmpdir(), 'troupe-docker-storage-'))
const created: { HostConfig: { StorageOpt?: object } }[] = []
let storageDriver = 'overlay2'
const engine = createServer(async (request, response) => {
  const body = (await request.toArray()).join('')
  const answer = (status: number, json: object) => response.writeHead(status).end(JSON.stringify(json))
  if (request.url?.endsWith('/info')) return answer(200, { Driver: storageDriver })
  if (request.url?.includes('/images/')) return answer(200, { Id: 'sha256:1', Config: null })
  created.push(JSON.parse(body))
  return answer(400, { message: "--storage-opt is supported only for overlay over xfs with 'pquota' mount option" })
})
const hostBefore = process.env.DOCKER_HOST
beforeAll(async () => {
  await new Promise<void>(resolve => engine.listen(0, '127.0.0.1', resolve))
  process.env.DOCKER_HOST = `tcp://127.0.0.1:${(engine.address() as AddressInfo).port}`
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
  storageDriver = 'overlayfs'
  await expect(start(512)).rejects.toMatchObject({ message: expect.stringMatching(/is overlayfs/), hint: switches })
  expect(created).toHaveLength(2)
  await driver.close()
})

test("the limit can be held where the engine's data lies on xfs with project quotas", () => {
  const mounts = [
    '/dev/a / ext4 rw 0 0',
    '/dev/b /var/lib xfs rw,prjquota 0 0',
    '/dev/c /srv xfs rw,noquota 0 0',
    '/dev/d /var/lib/docker/volumes ext4 rw 0 0',
  ].join('\n')
  const can = (path: string) => hasProjectQuota(path, mounts)
  expect([can('/var/lib/docker'), can('/srv/docker'), can('/home/docker'), can('/var/library')]).toEqual([
    ...[true, false, false, false],
  ])
})
