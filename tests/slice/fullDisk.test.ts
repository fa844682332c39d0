/**
 * A real run on a small disk (tmpfs) that fills up as it starts and later: it pauses, says so, can be stopped, and goes
 * on when there is room, with the losses of a run that had room throughout.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, rmSync, statSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { StepReport } from '../../replay/learning/progress'
import type { Verification } from '../../replay/verify/verification'
import { spaceIn } from '../../runtime/disk/freeSpace'
import { pythonEnvironment, pythonPath } from '../../runtime/python'
import { isAlive, type Running, troupe } from '../support/cli'
import { canMount, onSmallDisk, seeingDisksOf, seenFrom } from '../support/smallDisk'
import { smallRun } from '../support/smallRun'
import { until } from '../support/until'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-disk-'))
const disk = mkdtempSync(join(tmpdir(), 'troupe-slice-small-'))
afterAll(() => {
  for (const each of [directory, disk]) rmSync(each, { recursive: true, force: true })
})

const checkpoints = ['train.checkpointEvery=1', 'train.keepVersions=2']
const settings = [...checkpoints, 'engine.count=1', 'evaluation.problems=0'].flatMap(s => ['--set', s])
const train = (bus: string) => ['train', 'quickstart', '--json', '--run', 'r', '--steps', '2', '--bus', `lmdb:${bus}`]
const lossesOf = (stdout: string) =>
  stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as StepReport)
    .filter(({ type }) => type === 'step')
    .map(({ step, metrics }) => [step, metrics.loss])

/** Writes zeros into a file until at most `leave` bytes of the disk are free. */
function fill(path: string, leave = 0): void {
  const file = openSync(path, 'w')
  try {
    for (;;) {
      if (leave > 0 && (spaceIn(path)?.freeBytes ?? 0) <= leave) return
      writeSync(file, Buffer.alloc(4096))
    }
  } catch (thrown) {
    expect((thrown as NodeJS.ErrnoException).code).toBe('ENOSPC')
  } finally {
    closeSync(file)
  }
}

const whereMountable = canMount ? test : test.skip

let shell: ChildProcess | undefined
afterAll(() => shell?.kill('SIGKILL'))

const within = join(disk, 'bus')
const path = (name: string) => join(seenFrom(shell!.pid!, disk), name)
const filler = () => path('filler')
const forks = join(directory, 'forks')
const onDisk = (...args: readonly string[]) =>
  troupe(args, { TROUPE_FORK_SERVER: forks }, undefined, undefined, seeingDisksOf(shell!.pid!))
const over = (run: Running) => !isAlive(run.process.pid!)

whereMountable(
  'a run whose disk fills up pauses, goes on when there is room, and ends as one that had room',
  async () => {
    // A process holds the disk, so that one run after another can have it: a fork server, which the runs share.
    const [program = '', ...holder] = onSmallDisk(disk, 96, pythonPath(), '-m', 'troupe_policy.fork_server', forks)
    shell = spawn(program, holder, { stdio: ['pipe', 'ignore', 'ignore'], env: pythonEnvironment() })
    await until(() => statSync(path('')).dev !== statSync(disk).dev)

    const undisturbed = await troupe([...train(join(directory, 'plain')), ...smallRun(100), ...settings]).done
    expect({ code: undisturbed.code, stderr: undisturbed.stderr.slice(-2000) }).toMatchObject({ code: 0 })

    const run = onDisk(...train(within), ...smallRun(100), ...settings)
    // At first before its model is made, then while it trains.
    await until(() => over(run) || existsSync(path('bus/runs/r/blobs')), 120_000)
    fill(filler())
    await until(() => over(run) || run.said().includes('the run pauses'), 120_000)
    rmSync(filler())
    await until(() => over(run) || existsSync(path('bus/runs/r/checkpoints/step-000000')), 300_000)
    const earlier = run.said().length
    fill(filler())
    await until(() => over(run) || run.said().slice(earlier).includes('the run pauses'), 120_000)
    const size = () => statSync(path('bus/runs/r/log/data.mdb')).size
    const before = size()
    await new Promise(resolve => setTimeout(resolve, 3000))
    expect({ over: over(run), size: size(), stderr: run.said() }).toMatchObject({ over: false, size: before })
    rmSync(filler())

    const { code, stdout, stderr } = await run.done
    expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
    expect(lossesOf(stdout)).toEqual(lossesOf(undisturbed.stdout))
    expect(lossesOf(stdout)).toHaveLength(2)
    expect(stderr).toMatch(/"path":"[^"]*bus\/runs\/r[^"]*","need":"[\d.]+ MiB","free":"0 KiB"/)
    expect(stderr).toMatch(/alarm: disk-full: .*bus\/runs\/r.* [\d.]+ MiB are needed and \d+ KiB are free/)
    expect(stderr).toContain('the run resumes')
    expect(stderr).not.toMatch(/\n\s+at /)
    const verified = await onDisk('replay', 'verify', '--json', '--run', 'r', '--bus', `lmdb:${within}`).done
    expect(JSON.parse(verified.stdout) as Verification).toMatchObject({ ok: true, problems: [] })
  },
)

whereMountable(
  'a run that is stopped while it pauses ends at once, and a resume goes on with what it had',
  async () => {
    const resume = (steps: number) =>
      onDisk(...['train', 'quickstart', '--json', '--resume', 'r', '--steps', `${steps}`, '--bus', `lmdb:${within}`])
    const run = resume(9)
    await until(
      () => over(run) || readdirSync(path('bus/runs/r/checkpoints')).some(name => name.startsWith('step-000003')),
      120_000,
    )
    fill(filler())
    await until(() => over(run) || run.said().includes('the run pauses'), 120_000)
    const begun = performance.now()
    run.process.kill('SIGTERM')
    const stopped = await run.done
    expect({ code: stopped.code, stderr: stopped.stderr.slice(-2000) }).toMatchObject({ code: 143 })
    expect(performance.now() - begun).toBeLessThan(60_000)
    expect(stopped.stderr).not.toMatch(/\n\s+at /)
    rmSync(filler())
    fill(filler(), 700 * 1024) // enough to open the log, not to begin
    const starting = resume(6)
    await until(() => over(starting) || starting.said().includes('the run pauses'), 120_000)
    starting.process.kill('SIGTERM')
    expect(await starting.done).toMatchObject({ code: 143, stderr: expect.not.stringMatching(/\n\s+at /) })
    rmSync(filler())
    const last = await resume(6).done
    expect({ code: last.code, stderr: last.stderr.slice(-2000) }).toMatchObject({ code: 0 })
    expect(lossesOf(last.stdout).at(-1)![0]).toBe(6)
  },
)
