/**
 * A run's directory is copied and moved: everything goes on in the copy, the original is neither read nor written. What is
 * moved is damaged: a checkpoint, so that the resume goes on from an older one as it is told; and in another copy records
 * of the log, so that the run is salvaged first.
 */
import { cpSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { CheckpointSaved } from '../../messages/facts'
import { runId } from '../../messages/ids'
import { topicOnBus } from '../../messages/topics'
import type { StepReport } from '../../replay/learning/progress'
import type { Verification } from '../../replay/verify/verification'
import { salvagePages } from '../../runtime/bus/lmdb/pages/salvagePages'
import type { StoredTopic } from '../../runtime/bus/lmdb/store'
import { filesBelow, flipBit, sha256 } from '../support/checkpointFiles'
import { messagesOf, troupe } from '../support/cli'
import { smallRun } from '../support/smallRun'

jest.setTimeout(800_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-moved-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const original = join(directory, 'original')
const checkpoints = ['train.checkpointEvery=1', 'train.keepVersions=2']
const settings = [...checkpoints, 'engine.count=1', 'evaluation.problems=0'].flatMap(s => ['--set', s])
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
  const learned = await replay(copy, 'learn', '3', '--json')
  expect(learned.code).toBe(0)
  expect(JSON.parse(learned.stdout)).toMatchObject({
    step: 3,
    checkpoint: 'step-000002',
    agrees: true,
    sameWeights: true,
  })
  expect(contents(original)).toEqual(before)
})

test('after a move, when nothing is left at the old place, a flipped bit in the newest checkpoint is refused with the file and the command that goes on, as the copy did', async () => {
  const kept = copied('kept')
  const bus = join(directory, 'moved/to')
  cpSync(kept, bus, { recursive: true })
  renameSync(original, join(directory, 'gone'))
  rmSync(kept, { recursive: true })
  try {
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
  } finally {
    renameSync(join(directory, 'gone'), original)
  }
})

/** Changes one bit in the records of step 2's trajectories; the checksum of their chunk then fails. */
function damageSecondStep(bus: string): void {
  const file = join(bus, 'runs/r/log/data.mdb')
  const found = salvagePages(file)!
  const { id } = (found.topics as readonly StoredTopic[]).find(
    ({ topic }) => topic === topicOnBus(runId('r'), 'trajectories'),
  )!
  const chunks = found.chunks.get(id * 65_536)!.map(each => Buffer.from(each.bytes()))
  const ofStep = chunks.filter(bytes => bytes.includes('s0002.'))
  const chunk = ofStep[Math.floor(ofStep.length / 2)]!
  found.close()
  const bytes = readFileSync(file)
  for (let at = bytes.indexOf(chunk); at >= 0; at = bytes.indexOf(chunk, at + 1))
    bytes[at + Math.floor(chunk.length / 2)]! ^= 1
  writeFileSync(file, bytes)
}

test('a run with damaged records is salvaged up to them, and what is saved is resumed to its end', async () => {
  const bus = copied('damaged')
  damageSecondStep(bus)
  const refused = await resume(bus, 3)
  expect(refused.code).not.toBe(0)
  expect(refused.stderr).toContain('bus.corrupt')

  const saved = join(directory, 'saved')
  const salvage = await troupe(['replay', 'salvage', 'r', ...at(bus), '--to', `lmdb:${saved}`, '--json']).done
  expect(salvage).toMatchObject({ code: 0 })
  expect(JSON.parse(salvage.stdout)).toMatchObject({ ok: true, steps: [2], lost: expect.any(Array) })

  const { code, stdout, stderr } = await resume(saved, 2)
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  expect(steps(stdout).map(({ step }) => step)).toEqual([2])
  const verified = JSON.parse((await replay(saved, 'verify', '--json')).stdout) as Verification
  expect(verified).toMatchObject({ ok: true, problems: [] })
})
