/**
 * The sandbox's attacks as commands of root in an environment of the driver `oci`: none reaches the machine, another
 * environment or what comes after it.
 *
 * An environment grants more than the sandbox (files of its own, processes, sockets of its own network), so what a command
 * prints is not compared. After each attack another environment answers, what the machine has is as it was, and the machine's
 * secret is in no output; at the end no process, mount or cgroup is left.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Environment, EnvironmentDriver, EnvironmentSpec } from '../../environments/drivers/driver'
import { ociDriver, ociMissing } from '../../environments/drivers/oci'
import { systemEffects } from '../../runtime/effects'
import { attacks } from '../sandbox/attacks'
import { outerAttacks } from '../sandbox/outerAttacks'
import { processAttacks } from '../sandbox/processAttacks'
import { copyLibraries, makeMinimalImage } from '../support/minimalImage'

jest.setTimeout(120_000)

const python = '/usr/bin/python3'
/** Python of Debian, which can be copied into an image: its program and its standard library. */
function pythonMissing(): string | undefined {
  try {
    execFileSync(python, ['-c', 'import ctypes, socket'], { stdio: 'ignore' })
    return undefined
  } catch {
    return `no ${python} that can be copied into an image`
  }
}

function copyPython(root: string): void {
  const said = execFileSync(python, [
    '-c',
    'import sys, os; print(os.path.realpath(sys.executable), os.path.dirname(os.__file__))',
  ])
  const [program, library] = `${said}`.trim().split(' ') as [string, string]
  cpSync(program, join(root, 'usr/bin/python3'))
  cpSync(library, join(root, library), {
    recursive: true,
    dereference: true,
    filter: path => !/\/(__pycache__|test|config-|dist-packages)/.test(path),
  })
  const modules = readdirSync(join(library, 'lib-dynload')).map(name => join(library, 'lib-dynload', name))
  for (const file of [program, ...modules]) copyLibraries(root, file)
}

/** Reads what an attack could change on the machine. `bootedAt`: clock less uptime, in seconds; a jump of the clock changes it. */
function machine() {
  const settings = [
    'kernel/core_pattern',
    'kernel/modprobe',
    'vm/overcommit_memory',
    'net/ipv4/ip_forward',
    'kernel/hostname',
  ]
  return {
    host: hostname(),
    modules: execFileSync('sh', ['-c', 'cut -d" " -f1 /proc/modules 2>/dev/null | sort || true'], { encoding: 'utf8' }),
    settings: settings.map(name => {
      try {
        return readFileSync(`/proc/sys/${name}`, 'utf8')
      } catch {
        return 'none'
      }
    }),
    bootedAt: Date.now() / 1000 - Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]),
    swaps: readFileSync('/proc/swaps', 'utf8').split('\n').length,
    passwords: statSync('/etc/passwd').mtimeMs,
  }
}

const missing = ociMissing() ?? pythonMissing()
if (missing !== undefined) {
  console.warn(`attacks as commands of an environment are not tested: ${missing}`)
  test.skip(`attacks in an environment: ${missing}`, () => {})
} else {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-attacks-'))
  const secret = 'SECRET-OF-THE-MACHINE-7d1f'
  const limits = { memoryMb: 256, processes: 64, cpus: 1, storageMb: 256 }
  const spec: EnvironmentSpec = { image: 'minimal', network: 'no-network', limits }
  let driver: EnvironmentDriver
  let attacked: Environment
  let innocent: Environment
  let before: ReturnType<typeof machine>

  beforeAll(async () => {
    writeFileSync(join(directory, 'secret'), secret, { mode: 0o644 })
    process.env.TROUPE_TEST_SECRET = secret
    makeMinimalImage(directory)
    copyPython(join(directory, 'images/minimal/rootfs'))
    driver = ociDriver({ run: 'attacks', epoch: 1, fx: systemEffects, directory })
    innocent = await driver.start(spec)
    attacked = await driver.start(spec)
    const hello = await attacked.exec({
      command: ['/usr/bin/python3', '-c', 'import ctypes; print(6 * 7)'],
      timeoutMs: 20_000,
    })
    expect([`${hello.stdout}`, `${hello.stderr}`]).toEqual(['42\n', ''])
    before = machine()
  })
  afterAll(async () => {
    await driver?.close()
    delete process.env.TROUPE_TEST_SECRET
    rmSync(directory, { recursive: true, force: true })
  })

  const all = [...attacks, ...processAttacks, ...outerAttacks].filter(({ at = 'full' }) => at === 'full')
  test.each(all.map(attack => [attack.title, attack] as const))('%s stays inside', async (title, { code, more }) => {
    const timeoutMs = Math.min(more?.timeoutMs ?? 3000, 3000)
    const [result, other] = await Promise.all([
      attacked.exec({ command: ['/usr/bin/python3', '-c', code], timeoutMs }),
      innocent.exec({ command: 'echo innocent', timeoutMs: 20_000 }),
    ])
    const printed = `${result.stdout}${result.stderr}`
    expect(printed).not.toContain(secret)
    // Families of sockets that reach past the environment's network.
    if (title.startsWith('a socket to ')) expect(printed).not.toContain('SUCCEEDED')
    expect([other.status, `${other.stdout}`]).toEqual(['ok', 'innocent\n'])
    const after = await innocent.exec({ command: 'echo alive', timeoutMs: 20_000 })
    expect([after.status, `${after.stdout}`]).toEqual(['ok', 'alive\n'])
    expect(result.wallMs).toBeLessThan(timeoutMs + 5000)
    const now = machine()
    expect(Math.abs(now.bootedAt - before.bootedAt)).toBeLessThan(2)
    expect({ ...now, bootedAt: before.bootedAt }).toEqual(before)
    if (result.status === 'lost') await attacked.restart()
  })

  test('afterwards nothing is left: no process, no mount, no cgroup', async () => {
    await driver.close()
    expect(readdirSync(join(directory, 'live'))).toEqual([])
    expect(readFileSync('/proc/self/mountinfo', 'latin1')).not.toContain(directory)
    const processes = execFileSync('sh', ['-c', 'ps -eo args'], { encoding: 'utf8' }).split('\n')
    expect(processes.filter(line => line.includes(directory) && !line.includes('jest'))).toEqual([])
  })
}
