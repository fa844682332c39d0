/**
 * Calls that together want more memory than there is: they take turns; and whom the kernel kills nevertheless is told apart
 * from code that failed.
 */
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { answerGrader } from '../../actors/verification/answerGrader'
import { isOutOfMemory, MACHINE_OUT_OF_MEMORY, openSandbox, type RunResult, type Sandbox } from '../../sandbox'
import { type MachineMemory, machineMemory } from '../../sandbox/machineMemory'
import { MemoryBudget, processBudget } from '../../sandbox/memoryBudget'
import { runPythonTool } from '../../sandbox/tools/pythonTool'
import { until } from '../support/until'

type Opened = Sandbox & { readonly zygotePids: readonly number[] }
const MIB = 2 ** 20
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')
const free: MachineMemory = { totalBytes: 2048 * MIB, availableBytes: () => 2048 * MIB, kills: () => 0 }

const scratch = mkdtempSync(join(tmpdir(), 'memory-'))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

/** Files as the kernel shows them to a process in a cgroup of v2. */
function fakeRoots(name: string, files: Readonly<Record<string, string>>) {
  const roots = { proc: join(scratch, name, 'proc'), cgroup: join(scratch, name, 'cgroup') }
  for (const [path, content] of Object.entries(files)) {
    const file = join(scratch, name, path)
    mkdirSync(join(file, '..'), { recursive: true })
    writeFileSync(file, content)
  }
  return roots
}

const meminfo = 'MemTotal:       25165824 kB\nMemFree: 1 kB\nMemAvailable:   20971520 kB\n'

test('the memory of a machine is that of the tightest cgroup above this process, v2 or v1', () => {
  const v2 = machineMemory(
    fakeRoots('v2', {
      'proc/meminfo': meminfo,
      'proc/vmstat': 'pgfault 3\noom_kill 4\n',
      'proc/self/cgroup': '0::/a/b\n',
      'cgroup/a/memory.max': '2147483648\n',
      'cgroup/a/memory.current': '1073741824\n',
      'cgroup/a/memory.stat': 'anon 5\ninactive_file 104857600\n',
      'cgroup/a/memory.events': 'low 0\noom 3\noom_kill 2\n',
      'cgroup/a/b/memory.max': 'max\n',
      'cgroup/a/b/memory.current': '5\n',
      'cgroup/a/b/memory.events': 'oom_kill 1\n',
    }),
  )
  expect([v2.totalBytes, v2.availableBytes(), v2.kills()]).toEqual([2048 * MIB, 1124 * MIB, 7])
  const v1 = machineMemory(
    fakeRoots('v1', {
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '4:memory:/box\n0::/\n',
      'cgroup/memory/box/memory.limit_in_bytes': '1073741824\n',
      'cgroup/memory/box/memory.usage_in_bytes': '1048576\n',
      'cgroup/memory/box/memory.oom_control': 'oom_kill_disable 0\nunder_oom 0\noom_kill 3\n',
    }),
  )
  expect([v1.totalBytes, v1.availableBytes(), v1.kills()]).toEqual([1024 * MIB, 1023 * MIB, 3])
  const none = machineMemory(fakeRoots('none', { 'proc/meminfo': meminfo }))
  expect([none.totalBytes, none.availableBytes(), none.kills()]).toEqual([24 * 1024 * MIB, 20 * 1024 * MIB, 0])
})

test('a call begins beside others only within the budget and what is free; one alone always does', () => {
  let available = 500
  const budget = new MemoryBudget({ totalBytes: 1000, availableBytes: () => available, kills: () => 0 })
  expect(budget.mostBytes).toBe(800)
  expect([budget.take(5000), budget.take(1)]).toEqual([true, false])
  let told = 0
  const forget = budget.onGiven(() => told++)
  budget.give(5000)
  expect([budget.take(400), budget.take(400), budget.take(400)]).toEqual([true, true, false])
  budget.give(400)
  available = 100
  forget()
  budget.give(400)
  expect(told).toBe(2)
})

test('20 calls of 400 MB in 2 GiB all end ok: never more at once than fit', async () => {
  const sandbox = await openSandbox({ requireLevel: 'full', zygotes: 2, machineMemoryMb: 2048 })
  try {
    const code = 'import time\nbegan = time.monotonic()\ntime.sleep(0.08)\nprint(began, time.monotonic())'
    const results = await Promise.all(
      Array.from({ length: 20 }, (_, n) => sandbox.run({ id: `${n}`, code, memoryMb: 400, timeoutMs: 20_000 })),
    )
    expect(results.map(({ status }) => status)).toEqual(Array(20).fill('ok'))
    const spans = results.map(({ stdout }) => text(stdout).split(' ').map(Number) as [number, number])
    const atOnce = spans.map(([at]) => spans.filter(([from, to]) => from <= at && at < to).length)
    expect(Math.max(...atOnce)).toBeLessThanOrEqual(5)
    expect(Math.max(...atOnce)).toBeGreaterThan(1)
  } finally {
    await sandbox.close()
  }
}, 30_000)

test('a call that waits too long for memory is not run, and says why', async () => {
  const sandbox = await openSandbox({
    requireLevel: 'full',
    zygotes: 1,
    memory: free,
    machineMemoryMb: 200,
    memoryWaitMs: 300,
  })
  const stop = new AbortController()
  const long = sandbox.run({ id: 'long', code: 'import time; time.sleep(60)', timeoutMs: 60_000 }, stop.signal)
  long.catch(() => undefined)
  expect(await sandbox.run({ id: 'short of memory', code: 'print(1)' })).toMatchObject({
    status: 'rejected',
    reason: MACHINE_OUT_OF_MEMORY,
  })
  stop.abort()
  await expect(long).rejects.toMatchObject({ code: 'sandbox.aborted' })
  expect(await sandbox.run({ id: 'after', code: 'print(1)' })).toMatchObject({ status: 'ok' })
  await sandbox.close()
}, 30_000)

test('a sandbox that is closed while calls run gives their memory back to the budget of the process', async () => {
  const sandbox = await openSandbox({ requireLevel: 'full', zygotes: 1 })
  const budget = processBudget()
  const [take, give] = [jest.spyOn(budget, 'take'), jest.spyOn(budget, 'give')]
  const code = 'import time; time.sleep(60)'
  const calls = ['a', 'b'].map(id => sandbox.run({ id, code, memoryMb: 64, timeoutMs: 60_000 }))
  const ends = Promise.allSettled(calls)
  await until(() => take.mock.results.filter(({ value }) => value === true).length === 2)
  expect(give).not.toHaveBeenCalled()
  await sandbox.close()
  expect(await ends).toMatchObject(Array(2).fill({ reason: { code: 'sandbox.closed' } }))
  expect(give.mock.calls).toEqual([[64 * MIB], [64 * MIB]])
  take.mockRestore()
  give.mockRestore()
}, 30_000)

const childrenOf = (pids: readonly number[]): number[] =>
  pids.flatMap(pid =>
    spawnSync('pgrep', ['-P', String(pid)], { encoding: 'utf8' })
      .stdout.split('\n')
      .filter(Boolean)
      .map(Number),
  )

describe('a call that the kernel kills for lack of memory', () => {
  let kills = 0
  let sandbox: Opened
  beforeAll(async () => {
    sandbox = (await openSandbox({
      requireLevel: 'full',
      zygotes: 1,
      memory: { ...free, kills: () => kills },
    })) as unknown as Opened
  })
  afterAll(() => sandbox.close())

  /** Does what the kernel does: counts first, then sends SIGKILL. */
  async function killed(run: Promise<RunResult>, counted: boolean): Promise<RunResult> {
    run.catch(() => undefined)
    await until(() => childrenOf(sandbox.zygotePids).length > 0)
    if (counted) kills++
    for (const pid of childrenOf(sandbox.zygotePids)) process.kill(pid, 'SIGKILL')
    return run
  }
  const sleep = { id: 'x', code: 'import time; time.sleep(60)', timeoutMs: 60_000 }
  /** The count before a call may be 100 ms old, and would miss a kill just before the call. */
  const countIsOld = () => new Promise(resolve => setTimeout(resolve, 120))

  test('says so; one that anybody else kills does not', async () => {
    expect(await killed(sandbox.run(sleep), true)).toMatchObject({ status: 'killed', reason: MACHINE_OUT_OF_MEMORY })
    await countIsOld()
    const other = await killed(sandbox.run(sleep), false)
    expect([other.status, other.reason]).toEqual(['killed', undefined])
    kills++ // somebody else's process, before this call begins
    await countIsOld()
    const fails = await sandbox.run({ id: 'y', code: 'raise SystemExit(3)' })
    expect([fails.status, fails.reason]).toEqual(['error', undefined])
  })

  test('is no outcome of the tool that the model would see, and no verdict of the grader', async () => {
    const tool = runPythonTool(sandbox, { code: sleep.code, input: '' }, { timeoutMs: 60_000 })
    tool.catch(() => undefined)
    await killed(tool as never, true).catch(() => undefined)
    await expect(tool).rejects.toMatchObject({ code: 'sandbox.out_of_memory', retriable: true })
    const short = { status: 'killed', signal: 'SIGKILL', reason: MACHINE_OUT_OF_MEMORY } as const
    const empty = new Uint8Array(0)
    const run = async () =>
      ({ id: 'g', exitCode: null, ...short, stdout: empty, stderr: empty }) as unknown as RunResult
    const grade = answerGrader({ run, lanes: 1 }, { timeoutMs: 1000 })
    await expect(grade({ answer: 'x+1', truth: '1+x' })).rejects.toMatchObject({
      code: 'sandbox.out_of_memory',
      retriable: true,
    })
  })
})

const memoryGroup = '/sys/fs/cgroup/memory'
const ownGroup = join(memoryGroup, `troupe-test-${process.pid}`)
function canMakeGroup(): boolean {
  try {
    mkdirSync(ownGroup)
    return true
  } catch {
    return false // No cgroup of version 1 here, or no right to make one.
  }
}

const withGroup = canMakeGroup() ? test : test.skip
withGroup(
  'the kernel itself: calls in a cgroup that is too small for them',
  async () => {
    const sandbox = (await openSandbox({
      requireLevel: 'full',
      zygotes: 1,
      machineMemoryMb: 8192,
    })) as unknown as Opened
    try {
      writeFileSync(join(ownGroup, 'memory.limit_in_bytes'), String(256 * MIB))
      for (const pid of sandbox.zygotePids) writeFileSync(join(ownGroup, 'cgroup.procs'), String(pid))
      const code = 'x = bytearray(b"x") * (160 << 20)\nimport time; time.sleep(1.5)\nprint(len(x))'
      const results = await Promise.all(
        [1, 2, 3].map(n => sandbox.run({ id: `${n}`, code, memoryMb: 512, timeoutMs: 20_000 })),
      )
      const failed = results.filter(({ status }) => status !== 'ok')
      expect(failed.length).toBeGreaterThan(0)
      expect(failed.filter(result => !isOutOfMemory(result))).toEqual([])
      expect(readFileSync(join(ownGroup, 'memory.oom_control'), 'latin1')).toMatch(/^oom_kill [1-9]/m)
    } finally {
      await sandbox.close()
      await until(() => {
        try {
          rmdirSync(ownGroup)
          return true
        } catch {
          return false
        }
      })
    }
  },
  30_000,
)
