/**
 * An environment's only way out, and its disk space: the allowlist's proxy and the limit on changes, of all
 * drivers. A driver that cannot run on this machine is skipped with the reason.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  dockerDriver,
  dockerMissing,
  type Environment,
  type EnvironmentDriver,
  localDriver,
  ociDriver,
  ociMissing,
} from '../../environments'
import { isAllowed, parseEntry } from '../../environments/network/allowlist'
import { systemEffects } from '../../runtime/effects'
import { withEngine } from '../support/environmentOwner'
import { importMinimal, makeMinimalImage, removeImages } from '../support/minimalImage'

jest.setTimeout(60_000)

const localMissing = process.geteuid?.() === 0 ? undefined : 'this suite runs local as root'
const kinds = [
  { name: 'local', open: localDriver, missing: localMissing },
  { name: 'oci', open: ociDriver, missing: ociMissing() },
  { name: 'docker', open: dockerDriver, missing: dockerMissing() },
] as const

for (const { name, open, missing } of kinds) {
  if (missing !== undefined) {
    console.warn(`limits of the driver ${name} are not tested: ${missing}`)
    test.skip(`the driver ${name}: ${missing}`, () => {})
    continue
  }
  describe(`the driver ${name}`, () => {
    const directory = mkdtempSync(join(tmpdir(), 'troupe-limits-'))
    const spec = { image: 'minimal', network: 'no-network', limits: { memoryMb: 128, processes: 40, cpus: 1 } } as const
    let driver: EnvironmentDriver
    beforeAll(async () => {
      makeMinimalImage(directory)
      if (name === 'docker') await withEngine(engine => importMinimal(engine, directory))
      driver = open({ run: 'limits', fx: systemEffects, directory })
    })
    afterAll(async () => {
      await driver.close()
      if (name === 'docker') await withEngine(engine => removeImages(engine, directory))
      rmSync(directory, { recursive: true, force: true })
    })
    const text = async (command: string, one: Environment) => {
      const { stdout, stderr } = await one.exec({ command: ['bash', '-c', command], timeoutMs: 20_000 })
      return `${stdout}${stderr}`.trim()
    }

    test('with an allowlist, the hosts in it are reached through the proxy, and nothing else is', async () => {
      const server = createServer((request, reply) => reply.end(`${request.headers.host} ${request.url}`))
      await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
      const { port } = server.address() as AddressInfo
      const one = await driver.start({
        ...spec,
        network: 'allowlist',
        allowedHosts: [`127.0.0.1:${port}`, 'localhost'],
      })
      const through = (request: string) =>
        text(`exec 3<>/dev/tcp/127.0.0.1/3128; printf '${request}\\r\\n\\r\\n' >&3; cat <&3`, one)
      const get = (where: string) => through(`GET http://${where}/a?b HTTP/1.0\\r\\nHost: ${where}`)
      expect(await get(`127.0.0.1:${port}`)).toMatch(new RegExp(`200 OK[\\s\\S]*127.0.0.1:${port} /a\\?b$`))
      expect(await through(`CONNECT 127.0.0.1:${port} HTTP/1.1\\r\\n\\r\\nGET /c HTTP/1.0`)).toMatch(
        /200 Conn[\s\S]*\/c$/,
      )
      expect(await get(`127.0.0.1:${port + 1}`)).toMatch(/403 Forbidden[\s\S]*not among the allowed hosts/)
      // A name of the list that leads to this machine.
      expect(await get(`localhost:${port}`)).toMatch(/403 Forbidden[\s\S]*not public/)
      expect(await through(`CONNECT example.org:443 HTTP/1.1`)).toMatch(/403 Forbidden/)
      expect(await text('echo $https_proxy; cat /proc/net/route | wc -l', one)).toBe('http://127.0.0.1:3128\n1')
      await one.restart()
      expect(await get(`127.0.0.1:${port}`)).toMatch(/200 OK/)
      await one.stop()
      server.close()
    })

    test('a limit on disk space holds, also in a fork, and leaves no device', async () => {
      const { limits } = await driver.capabilities()
      if (!limits.includes('storageMb'))
        return expect(driver.start({ ...spec, limits: { ...spec.limits, storageMb: 24 } })).rejects.toThrow(/storageMb/)
      const one = await driver.start({ ...spec, limits: { ...spec.limits, storageMb: 24 } })
      const fill = 'dd if=/dev/zero of=/tmp/x bs=1024k count=64 2>&1; stat -c %s /tmp/x'
      const full = await text(fill, one)
      expect(full).toMatch(/No space left/)
      expect(Number(full.split('\n').at(-1))).toBeLessThan(24 * 1024 * 1024)
      expect(await text('rm /tmp/x; echo small > f && cat f', one)).toBe('small')
      const two = await driver.fork(one)
      expect(await text(`cat f; ${fill}`, two)).toMatch(/^small\n[\s\S]*No space left/)
      await Promise.all([one.stop(), two.stop()])
      // The kernel frees a device a moment after the last process that saw its mount.
      const devices = () =>
        `${execFileSync('sh', ['-c', 'cat /sys/block/loop*/loop/backing_file 2>/dev/null || true'])}`
      for (let tries = 0; devices().includes(directory) && tries < 100; tries++)
        await new Promise(resolve => setTimeout(resolve, 50))
      expect(devices()).not.toContain(directory)
    })
  })
}

test('an entry of an allowlist is a host, or all below a domain, on one port or all; or a range of addresses', () => {
  const allowed = (entry: string, host: string, port = 443) => isAllowed([parseEntry(entry)], host, port)
  expect(allowed('pypi.org', 'PyPI.org')).toBe(true)
  expect(allowed('pypi.org', 'pypi.org.')).toBe(true)
  expect(allowed('pypi.org', 'evil-pypi.org')).toBe(false)
  expect(allowed('pypi.org', 'pypi.org.evil.example')).toBe(false)
  expect(allowed('*.debian.org', 'deb.debian.org')).toBe(true)
  expect(allowed('*.debian.org', 'debian.org')).toBe(false)
  expect(allowed('*.debian.org', 'evildebian.org')).toBe(false)
  expect(allowed('a.example:8443', 'a.example', 443)).toBe(false)
  expect(allowed('a.example:8443', 'a.example', 8443)).toBe(true)
  expect(allowed('[::1]:80', '::1', 80)).toBe(true)
  expect(allowed('10.1.0.0/16', '10.1.2.3')).toBe(false)
  expect(parseEntry('10.1.0.0/16').range!.check('10.1.2.3')).toBe(true)
  expect(parseEntry('10.1.0.0/16').range!.check('10.2.0.1')).toBe(false)
})
