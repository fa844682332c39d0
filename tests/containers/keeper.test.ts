/**
 * The keeper against its environment: root inside tries to reach it through the processes that it forks into the
 * environment, and one environment's fault must stay its own. Drivers `oci` and `local`, as root.
 */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Environment, EnvironmentDriver, EnvironmentSpec, ExecRequest } from '../../environments/drivers/driver'
import { localDriver } from '../../environments/drivers/local'
import { ociDriver, ociMissing } from '../../environments/drivers/oci'
import { systemEffects } from '../../runtime/effects'
import { makeMinimalImage } from '../support/minimalImage'

jest.setTimeout(60_000)

const rootMissing = process.platform === 'linux' && process.geteuid?.() === 0 ? undefined : 'this suite needs root'
const kinds = [
  { name: 'local', open: localDriver, missing: rootMissing },
  { name: 'oci', open: ociDriver, missing: ociMissing() },
] as const

const python = (words: readonly string[], program = 'python3') =>
  execFileSync(program, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], timeout: 30_000 })
const programs = join(__dirname, '../../environments/keeper')
const cgroups = () => execFileSync('find', ['/sys/fs/cgroup', '-name', 'troupe-fails'], { encoding: 'utf8' })
const asRoot = rootMissing === undefined ? test : test.skip

asRoot('a cgroup whose limits the kernel refuses is removed again', () => {
  const create = `import sys; sys.path.insert(0, ${JSON.stringify(programs)}); import cgroup
cgroup.create("troupe-fails", {"memoryMb": 64, "processes": "few"})`
  expect(() => python(['-c', create])).toThrow(/OSError/)
  expect(cgroups()).toBe('')
})

asRoot('a machine without cgroups that can be written is told what it needs, before anything starts', () => {
  const command = `mount -t tmpfs none /sys/fs/cgroup && python3 ${join(programs, 'probe.py')}`
  const { missing } = JSON.parse(python(['-m', 'sh', '-c', command], 'unshare')) as { missing: string[] }
  expect(missing).toEqual([
    expect.stringMatching(/^no writable cgroup can hold the limits .*\/sys\/fs\/cgroup mounted/),
  ])
})

for (const { name, open, missing } of kinds) {
  if (missing !== undefined) {
    console.warn(`the keeper of ${name} is not tested: ${missing}`)
    test.skip(`the keeper of ${name}: ${missing}`, () => {})
    continue
  }
  describe(`the keeper of ${name}`, () => {
    const directory = mkdtempSync(join(tmpdir(), 'troupe-keeper-'))
    const limits = { memoryMb: 128, processes: 40, cpus: 1 }
    const spec: EnvironmentSpec = { network: 'no-network', limits, ...(name === 'oci' ? { image: 'minimal' } : {}) }
    let driver: EnvironmentDriver
    let one: Environment
    beforeAll(async () => {
      makeMinimalImage(directory)
      driver = open({ run: 'keeper', epoch: 1, fx: systemEffects, directory })
      one = await driver.start(spec)
    })
    afterAll(async () => {
      await driver.close()
      expect(readdirSync(join(directory, 'live'))).toEqual([])
      rmSync(directory, { recursive: true, force: true })
    })
    const run = (command: ExecRequest['command'], more: Partial<ExecRequest> = {}) =>
      one.exec({ command, timeoutMs: 20_000, ...more })
    const keeperOf = ({ id }: Environment) =>
      Number(readFileSync(join(directory, 'live/keeper/1', id, 'keeper.pid'), 'utf8').split(' ')[0])
    const serverOf = (environment: Environment) =>
      Number(/PPid:\s+(\d+)/.exec(readFileSync(`/proc/${keeperOf(environment)}/status`, 'utf8'))![1])

    test('signals from inside to processes that enter do not reach it', async () => {
      await run('(while :; do kill -TERM -1; done) >/dev/null 2>&1 &')
      for (let round = 0; round < 20; round++) {
        const results = await Promise.all(Array.from({ length: 5 }, () => run('true')))
        for (const { status, signal } of results)
          expect(status === 'ok' || (status === 'error' && signal === 15)).toBe(true)
      }
      await one.restart()
      expect(`${(await run('echo alive')).stdout}`).toBe('alive\n')
    })

    test('memory, descriptors and program of a process that enters cannot be read from inside', async () => {
      // So many directories to search give the one who looks more than 100 ms.
      const entering = run(['true'], { env: { PATH: `${'/x:'.repeat(40_000)}/usr/bin:/bin` } })
      const look = await run(
        'for i in $(seq 25); do ls -l /proc/[0-9]*/exe; cat /proc/[0-9]*/maps; sleep 0.01; done 2>/dev/null',
      )
      expect((await entering).status).toBe('ok')
      expect(`${look.stdout}`).toMatch(/sleep/)
      expect(`${look.stdout}`).not.toMatch(/python/)
    })

    test("its program is not the machine's file, which a command /proc/self/exe would run and could overwrite", () => {
      expect(readlinkSync(`/proc/${keeperOf(one)}/exe`)).toMatch(/^\/memfd:python/)
    })

    test('a requester that sends half a request does not hold up the deadlines of commands', async () => {
      const silent = connect({ path: `/proc/${keeperOf(one)}/cwd/s` })
      const began = performance.now()
      const late = run('sleep 30', { timeoutMs: 500 })
      await new Promise(resolve => setTimeout(resolve, 200))
      silent.write(Buffer.from([9, 0]))
      for (let count = 0; count < 3; count++) connect({ path: `/proc/${keeperOf(one)}/cwd/s` }).unref()
      expect((await late).status).toBe('timeout')
      expect(performance.now() - began).toBeLessThan(4000)
      silent.destroy()
    })

    test('a request that comes long after its connection is served, since its requester may be busy', async () => {
      const socket = connect({ path: `/proc/${keeperOf(one)}/cwd/s` })
      await new Promise(resolve => setTimeout(resolve, 6000))
      const header = {
        op: 'exec',
        command: ['true'],
        cwd: '/',
        env: {},
        stdinBytes: 0,
        timeoutMs: 5000,
        maxOutputBytes: 9,
      }
      const text = JSON.stringify(header)
      const length = Buffer.alloc(4)
      length.writeUInt32LE(text.length)
      socket.write(Buffer.concat([length, Buffer.from(text)]))
      const [answer] = (await once(socket, 'data')) as [Buffer]
      expect(answer.toString()).toContain('"status": "ok"')
      socket.destroy()
    })

    test('deep directories are stored; those deeper than a path can say are refused, and all are removed', async () => {
      const deep = await driver.start(spec)
      const inDeep = (command: string) => deep.exec({ command, timeoutMs: 20_000 })
      expect((await inDeep('mkdir -p $(printf "d/%.0s" $(seq 1500))')).status).toBe('ok')
      const { digest } = await deep.snapshot()
      const again = await driver.start({ ...spec, snapshot: digest })
      expect(`${(await again.exec({ command: 'find . | wc -l', timeoutMs: 20_000 })).stdout}`).toBe('1501\n')
      await again.stop()
      await inDeep('p=$(printf "d/%.0s" $(seq 1500)); cd $p && mkdir -p $p')
      await expect(deep.snapshot()).rejects.toMatchObject({
        code: 'environment.snapshot_failed',
        retriable: false,
        message: expect.stringContaining('too deep to store'),
      })
      await deep.stop()
      expect(readdirSync(join(directory, 'live/keeper/1'))).toEqual([one.id])
      expect(readdirSync(join(directory, 'layers')).filter(layer => layer.startsWith('.'))).toEqual([])
    })

    test('a start for which the fork server has no descriptor fails alone', async () => {
      const server = String(serverOf(one))
      const limitTo = (files: number) => execFileSync('prlimit', ['--pid', server, `--nofile=${files}:4096`])
      limitTo(Math.max(...readdirSync(`/proc/${server}/fd`).map(Number)) + 1)
      await expect(driver.start(spec)).rejects.toMatchObject({
        code: 'environment.start_failed',
        message: expect.stringMatching(/^environment troupe-.*: OSError: .*Too many open files/),
      })
      limitTo(4096)
      expect((await run('true')).status).toBe('ok')
      const two = await driver.start(spec)
      await two.stop()
    })
  })
}
