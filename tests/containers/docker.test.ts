/**
 * What the driver docker does otherwise than those with a keeper: its containers end with their owner, a sweep removes what
 * stayed, and images are the engine's. Without an engine these are skipped with the reason.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildDockerImage, type DockerDriver, dockerDriver, dockerMissing } from '../../environments'
import { systemEffects } from '../../runtime/effects'
import { environmentContainers, environmentOwner, withEngine } from '../support/environmentOwner'
import { importMinimal, makeMinimalImage, removeImages } from '../support/minimalImage'

jest.setTimeout(60_000)

const missing = dockerMissing()
const directory = mkdtempSync(join(tmpdir(), 'troupe-docker-driver-'))
const spec = { image: 'minimal', network: 'no-network', limits: { memoryMb: 128, processes: 40 } } as const

if (missing !== undefined) {
  console.warn(`the driver docker is not tested: ${missing}`)
  test.skip(`the driver docker: ${missing}`, () => {})
} else {
  let driver: DockerDriver
  beforeAll(async () => {
    makeMinimalImage(directory)
    driver = dockerDriver({ run: 'alone', fx: systemEffects, directory })
    await importMinimal(driver.engine, directory)
  })
  afterAll(async () => {
    await removeImages(driver.engine, directory)
    await driver.close()
    rmSync(directory, { recursive: true, force: true })
  })

  test('kill -9 of the owner leaves nothing; the sweeper removes what a dead owner left', async () => {
    const owner = await environmentOwner('docker', directory, spec)
    const left = () => withEngine(engine => environmentContainers(engine, 'killed'))
    expect(await left()).toHaveLength(2)
    process.kill(owner.pid as number, 'SIGKILL')
    for (let tries = 0; (await left()).length > 0 && tries < 100; tries++)
      await new Promise(resolve => setTimeout(resolve, 100))
    expect(await left()).toEqual([])
    // As if the engine had lost the first process's input: the container outlives its owner.
    const labels = { 'troupe.environment': 'orphan', 'troupe.run': 'killed', 'troupe.epoch': '1' }
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    const dead = { 'troupe.pid': String(owner.pid), 'troupe.started': '1', 'troupe.boot': boot }
    const json = { Image: 'minimal', Cmd: ['sleep', '4712'], Labels: { ...labels, ...dead } }
    const { Id } = await driver.engine.call<{ Id: string }>('POST', '/containers/create', { json })
    await driver.engine.call('POST', `/containers/${Id}/start`)
    expect(await driver.sweep()).toEqual(['orphan'])
    expect(await left()).toEqual([])
  })

  test('an image that the engine lacks is refused, and nothing is fetched', async () => {
    await expect(driver.start({ ...spec, image: 'troupe-no-such-image' })).rejects.toMatchObject({
      code: 'environment.no_image',
      message: expect.stringContaining("no image 'troupe-no-such-image'"),
    })
    expect(await withEngine(engine => environmentContainers(engine))).toEqual([])
  })

  test('an image is built from a Dockerfile by the engine; a fault says what the engine said', async () => {
    const context = join(directory, 'context')
    mkdirSync(context)
    const file = join(context, 'Dockerfile')
    writeFileSync(join(context, 'greeting'), 'hello')
    writeFileSync(file, 'FROM minimal\nUSER agent\nCOPY greeting /srv/\nWORKDIR /srv\nENV WHO=world\n')
    const options = { file, context, timeoutMs: 60_000 }
    const image = await buildDockerImage(driver, options)
    const one = await driver.start({ ...spec, image })
    const { stdout } = await one.exec({ command: 'cat greeting; echo " $WHO"; id -u', timeoutMs: 20_000 })
    expect(`${stdout}`).toBe('hello world\n1000\n')
    await one.stop()
    writeFileSync(file, 'FROM minimal\nRUN exit 3\n')
    await expect(buildDockerImage(driver, options)).rejects.toMatchObject({
      code: 'environment.no_image',
      message: expect.stringMatching(/returned a non-zero code: 3|exit code: 3/),
    })
    await driver.engine.call('DELETE', `/images/${image}`, { query: { force: 1 } })
  })
}
