/**
 * Every attack beside an innocent call on another lane, then a call that must be untouched; and after all of them no
 * process, mount or descriptor that was not there before.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { openSandbox, type Sandbox, type SandboxLevel } from '../../sandbox'
import { attacks } from './attacks'
import { outerAttacks } from './outerAttacks'
import { processAttacks } from './processAttacks'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')
const CANARY = 'import time\nx = "CAN" + "ARY"\ntime.sleep(0.05)\nprint(x, sum(range(1000)))'

interface Traces {
  readonly users: number
  readonly mounts: number
  readonly descriptors: number
}

/** Processes of the users that code runs as (beside the zygotes), mounts that can be seen here, our descriptors. */
function traces(zygotes: readonly number[]): Traces {
  const users = readdirSync('/proc').filter(name => {
    if (!/^\d+$/.test(name)) return false
    try {
      const status = readFileSync(`/proc/${name}/status`, 'latin1')
      const parent = Number(/^PPid:\s+(\d+)/m.exec(status)?.[1])
      return zygotes.includes(parent) && !/^State:\s+Z/m.test(status)
    } catch {
      return false
    }
  }).length
  const descriptors = [process.pid, ...zygotes].map(pid => readdirSync(`/proc/${pid}/fd`).length)
  const mounts = readFileSync('/proc/self/mountinfo', 'latin1').split('\n').length
  return { users, mounts, descriptors: descriptors.reduce((sum, n) => sum + n, 0) }
}

/** Whoever inherits a dead process may reap it late. */
function runs(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'latin1'))
  } catch {
    return false
  }
}

describe.each<SandboxLevel>(['full', 'degraded'])('at level %s', level => {
  let sandbox: Sandbox & { readonly zygotePids?: readonly number[] }
  let before: Traces
  let pids: readonly number[]

  beforeAll(async () => {
    process.env.TROUPE_TEST_SECRET = 'must-not-leak'
    sandbox = await openSandbox({ level, requireLevel: level })
    for (let i = 0; i < 8; i++) await sandbox.run({ id: 'warm', code: CANARY })
    pids = sandbox.zygotePids ?? []
    before = traces(pids)
  })
  afterAll(() => sandbox.close())

  test.each(
    [...attacks, ...processAttacks, ...outerAttacks]
      .filter(({ at = level }) => at === level)
      .map(attack => [attack.title, attack] as const),
  )(
    '%s is contained',
    async (_, { code, status, says, complains, more, check }) => {
      const [result, canary] = await Promise.all([
        sandbox.run({ id: 'attack', code, timeoutMs: 5000, ...more }),
        sandbox.run({ id: 'canary', code: CANARY, timeoutMs: 20_000 }),
      ])
      const alive = await sandbox.run({ id: 'alive', code: 'print("alive")', timeoutMs: 20_000 })
      const [stdout, stderr] = [text(result.stdout), text(result.stderr)]
      try {
        expect([status].flat()).toContain(result.status)
        if (result.status === 'timeout') expect(result.wallMs).toBeLessThan((more?.timeoutMs ?? 5000) + 1500)
        expect(stdout).not.toContain('SUCCEEDED')
        if (says !== undefined) typeof says === 'string' ? expect(stdout).toBe(says) : expect(stdout).toMatch(says)
        if (complains !== undefined) expect(stderr).toMatch(complains)
        check?.(result)
      } catch (error) {
        throw new Error(
          `${(error as Error).message}\n${result.status} ${result.signal}\n${stdout.slice(0, 800)}\n${stderr.slice(-800)}`,
        )
      }
      expect([canary.status, text(canary.stdout)]).toEqual(['ok', 'CANARY 499500\n'])
      expect([alive.status, text(alive.stdout)]).toEqual(['ok', 'alive\n'])
    },
    30_000,
  )

  test('nothing is left: no process, no mount, no descriptor', async () => {
    expect(sandbox.zygotePids).toEqual(pids) // none had to be replaced
    for (let i = 0; i < 8; i++) await sandbox.run({ id: 'last', code: CANARY })
    const after = traces(pids)
    expect(after.users).toBe(0)
    expect(after.mounts).toBe(before.mounts)
    expect(after.descriptors).toBeLessThanOrEqual(before.descriptors + 2)
  })

  test('a zygote that is killed from outside takes its children with it', async () => {
    const call = sandbox.run({ id: 'k', code: 'import time; time.sleep(60)', timeoutMs: 60_000 })
    call.catch(() => undefined) // where something fails before it is awaited
    await sandbox.run({ id: 'k2', code: 'import time; time.sleep(0.3)' })
    const children = pids.flatMap(pid =>
      readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    )
    expect(children.length).toBeGreaterThan(0)
    for (const pid of pids) process.kill(pid, 'SIGKILL')
    expect(await call).toMatchObject({ status: 'killed' })
    await sandbox.run({ id: 'alive', code: 'print("alive")', timeoutMs: 20_000 })
    expect(children.filter(runs)).toEqual([])
  })
})
