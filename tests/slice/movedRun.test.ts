/**
 * A run's directory is copied and moved: everything goes on in the copy, the original is neither read nor written. And a
 * checkpoint of it is damaged: the resume says so, and goes on from an older one as it is told.
 */
import { cpSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { CheckpointSaved } from '../../messages/facts'
import type { StepReport } from '../../replay/learning/progress'
import type { Verification } from '../../replay/verify/verification'
import { filesBelow, flipBit, sha256 } from '../support/checkpointFiles'
import { messagesOf, troupe } from '../support/cli'
import { smallRun } from '../support/smallRun'

jest.setTimeout(400_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-moved-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const original = join(directory, 'original')
const settings = ['train.checkpointEvery=1', 'train.keepVersions=2', 'engine.count=1'].flatMap(s => ['--set', s])
const at = (bus: string) => ['--bus', `lmdb:${bus}`]
const train = (bus: string, ...args: string[]) => troupe(['train', 'quickstart', '--json', ...args, ...at(bus)]).done
const resume = (bus: string, steps: number, ...args: string[]) =>
  train(bus, '--resume', 'r', '--steps', String(steps), ...args)
const replay = (bus: string, ...args: string[]) => troupe(['replay', ...args, '--run', 'r', ...at(bus)]).done

/** Digests of all files below a directory, but for lmdb's lock, which readers write. */
const contents = (bus: string) =>
  Object.fromEntries(
    filesBelow(bus)
      .filter(path => !path.endsWith('lock.mdb'))
      .map(path => [path.slice(bus.length), sha256(readFileSync(path))]),
  )
const copied = (name: string, from = original): string => {
  const to = join(directory, name)
  cpSync(from, to, { recursive: true, preserveTimestamps: true })
  return to
}
const steps = (stdout: string) =>
  stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as StepReport)
    .filter(({ type }) => type === 'step')
const lossOf = (stdout: string, step: number) => steps(stdout).find(s => s.step === step)?.metrics.loss

beforeAll(async () => {
  const { code, stderr } = await train(original, '--steps', '2', '--run', 'r', ...smallRun(100), ...settings)
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
})

let loss: number | undefined

test('a copy is resumed, verified and recomputed while the original exists, which stays as it was, byte by byte', async () => {
  const before = contents(original)
  const copy = copied('copy')
  const { code, stdout, stderr } = await resume(copy, 3)
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  loss = lossOf(stdout, 3)
  expect(loss).toBeDefined()
  const verified = JSON.parse((await replay(copy, 'verify', '--json')).stdout) as Verification
  expect(verified).toMatchObject({ ok: true, problems: [], files: { checkpoints: 4, weights: 4, withoutDigest: 0 } })
  expect((await replay(copy, 'learn', '3', '--json')).code).toBe(0)
  expect(contents(original)).toEqual(before)
})

test('after a move, when nothing is left at the old place, the run goes on as the copy did', async () => {
  const kept = copied('kept')
  const moved = join(directory, 'moved/to')
  cpSync(kept, moved, { recursive: true })
  renameSync(original, join(directory, 'gone'))
  rmSync(kept, { recursive: true })
  try {
    const { code, stdout, stderr } = await resume(moved, 3)
    expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
    expect(lossOf(stdout, 3)).toBe(loss)
  } finally {
    renameSync(join(directory, 'gone'), original)
  }
})

test('one flipped bit in the newest checkpoint: the resume is refused with the file and the command that goes on', async () => {
  const bus = copied('flipped')
  const saved = (await messagesOf(bus, 'r', 'learner')).filter(
    (m): m is CheckpointSaved => m.type === 'checkpoint.saved',
  )
  const [newest, older] = saved.toReversed()
  const file = join(bus, 'runs/r/checkpoints', newest!.name, 'training/__0_0.distcp')
  flipBit(file)
  const refused = await resume(bus, 3)
  expect(refused.code).not.toBe(0)
  expect(refused.stderr).toContain('trainer.checkpoint_corrupt')
  expect(refused.stderr).toContain(file)
  expect(refused.stderr).toContain(`--resume r --from-checkpoint ${older!.name}`)
  const verified = JSON.parse((await replay(bus, 'verify', '--json')).stdout) as Verification
  expect(verified.problems).toMatchObject([{ kind: 'checkpoint-damaged', message: expect.stringContaining(file) }])
  const cured = await resume(bus, 3, '--from-checkpoint', older!.name)
  expect({ code: cured.code, stderr: cured.stderr.slice(-2000) }).toMatchObject({ code: 0 })
  expect(lossOf(cured.stdout, 3)).toBe(loss)
})
