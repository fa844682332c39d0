/**
 * The keeper against its environment: root inside tries to reach it through the processes that it forks into the
 * environment, and one environment's fault must stay its own. Drivers `oci` and `local`, as root.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
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
