/** `verify` reads what lies beside the log: checkpoints, published weights and blobs, and the topics of commands. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Fact } from '../../../messages/facts'
import { epoch, policyVersion, runId } from '../../../messages/ids'
import { topicOnBus } from '../../../messages/topics'
import { openLog } from '../../../replay/log/recordedRun'
import { type VerifyOptions, verifyRun } from '../../../replay/verify/verifyRun'
import { openRun } from '../../../runtime/openRun'
import { filesBelow, flipBit, sha256, writeCheckpoint } from '../../support/checkpointFiles'

const directory = mkdtempSync(join(tmpdir(), 'troupe-verify-files-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const root = join(directory, 'runs/r')
const bus = `lmdb:${directory}`
const at = (kind: 'checkpoints' | 'weights', name: string) => join(root, kind, name)

async function write(facts: readonly Fact[], torn = false): Promise<void> {
  const opened = await openRun(bus, 'r', 'write')
  await opened.journal.create(1)
  await opened.journal.append(facts)
  if (torn) {
    const topic = topicOnBus(runId('r'), 'turns')
    await opened.bus.append([{ topic, partition: 0, key: 'k', headers: {}, value: new Uint8Array([1]) }])
  }
  await opened.bus.close()
}

async function verified(options: VerifyOptions = {}) {
  const recorded = await openLog({ bus, run: 'r' })
  try {
    return await verifyRun(recorded, options)
  } finally {
    await recorded.close()
  }
}

const saved = (step: number, digests: { digest: string; manifest?: string }): Fact => {
  const name = `step-00000${step}`
  return { type: 'checkpoint.saved', at: 0, step, version: policyVersion(step), name, bytes: 1, ...digests }
}
const published = (version: number, url: string, digests: { digest: string; manifest?: string }): Fact => {
  const step = version
  return { type: 'weights.published', at: 0, version: policyVersion(version), step, url, bytes: 1, ...digests }
}
const end = (step: number): Fact => {
  return { type: 'step.completed', at: 0, step, epoch: epoch(0), version: policyVersion(step), metrics: {} }
}
const problems = async () => (await verified()).problems.filter(({ kind }) => /checkpoint|weights|blob/.test(kind))

beforeAll(async () => {
  const first = writeCheckpoint(at('checkpoints', 'step-000001'))
  const second = writeCheckpoint(at('checkpoints', 'step-000002'))
  const weights = writeCheckpoint(at('weights', 'v000002'), { trainer: false })
  const old = writeCheckpoint(at('weights', 'v000001'), { trainer: false })
  await write([
    saved(0, { digest: 'd', manifest: 'f'.repeat(64) }),
    { type: 'checkpoint.removed', at: 0, step: 0, name: 'step-000000' },
    saved(1, first),
    published(0, 'weights/v000000', { digest: 'd', manifest: 'f'.repeat(64) }),
    // As an old log has it: an absolute path of another directory, and no digest of a manifest.
    published(1, 'file:///elsewhere/runs/r/weights/v000001', { digest: old.digest }),
    end(1),
    saved(2, second),
    published(2, 'weights/v000002', weights),
    end(2),
  ])
  const blob = 'a large value'
  const digest = sha256(blob)
  mkdirSync(join(root, 'blobs', digest.slice(0, 2)), { recursive: true })
  writeFileSync(join(root, 'blobs', digest.slice(0, 2), digest.slice(2)), blob)
})

test('what is on disk is counted apart from what retention removed, and nothing is wrong with it', async () => {
  expect(await problems()).toEqual([])
  const files = { checkpoints: 2, weights: 2, blobs: 1, removed: 2, withoutDigest: 1 }
  expect((await verified()).files).toEqual(files)
  expect((await verified({ files: false })).files).toBeNull()
})

test('one flipped bit in any file is a problem at the fact that names the files', async () => {
  for (const folder of ['checkpoints/step-000001', 'checkpoints/step-000002', 'weights/v000001', 'weights/v000002']) {
    for (const file of filesBelow(join(root, folder))) {
      const restore = flipBit(file)
      const found = await problems()
      // The manifest of old weights is only compared by what it says: a flip may leave it readable.
      const isUnknown = folder === 'weights/v000001' && file.endsWith('manifest.json')
      expect(found.length).toBeGreaterThanOrEqual(isUnknown ? 0 : 1)
      if (!isUnknown) {
        expect(found[0]).toMatchObject({
          message: expect.stringContaining(file),
          place: expect.stringMatching(/^learner:0:/),
        })
        expect(found[0]!.kind).toBe(folder.startsWith('weights') ? 'weights-damaged' : 'checkpoint-damaged')
      }
      restore()
    }
  }
  const [blob] = filesBelow(join(root, 'blobs'))
  const restore = flipBit(blob!)
  expect(await problems()).toMatchObject([{ kind: 'blob-damaged', place: blob }])
  restore()
  expect(await problems()).toEqual([])
})

test('the model that a resume takes config and tokenizer from is compared with the newest sound checkpoint', async () => {
  const model = join(root, 'model')
  const found = async () => (await verified()).problems.filter(({ kind }) => kind === 'model-damaged')
  cpSync(at('checkpoints', 'step-000002'), model, { recursive: true })
  rmSync(join(model, 'manifest.json')) // as models of earlier versions have none
  rmSync(join(model, 'training'), { recursive: true })
  expect(await found()).toEqual([])
  const fields = { rope_theta: 10_000, dtype: 'bfloat16', transformers_version: '5' }
  writeFileSync(join(model, 'config.json'), JSON.stringify({ ...fields, rms_norm_eps: 1e-5 }))
  expect(await found()).toEqual([])
  writeFileSync(join(model, 'config.json'), JSON.stringify({ ...fields, rope_theta: 100 }))
  expect(await found()).toMatchObject([
    { place: model, message: expect.stringMatching(/differs from .* in rope_theta$/) },
  ])
  writeFileSync(join(model, 'config.json'), '{')
  expect(await found()).toMatchObject([{ message: expect.stringContaining('no JSON object') }])
  writeFileSync(join(model, 'config.json'), JSON.stringify(fields))
  const restore = flipBit(join(model, 'tokenizer.json'))
  expect(await found()).toMatchObject([
    { message: expect.stringMatching(/tokenizer\.json differs from .*step-000002/) },
  ])
  restore()
  rmSync(join(model, 'chat_template.jinja'))
  expect(await found()).toMatchObject([{ message: expect.stringMatching(/chat_template\.jinja is missing/) }])
  rmSync(model, { recursive: true })
  writeCheckpoint(model, { trainer: false }) // with a manifest, which also names the weights
  flipBit(join(model, 'model.safetensors'))
  expect(await found()).toMatchObject([{ message: expect.stringContaining('model.safetensors has the digest') }])
  rmSync(model, { recursive: true })
})

test('weights whose manifest names no files, as in format 1, are compared with the digest in the log', async () => {
  for (const folder of ['checkpoints/step-000002', 'weights/v000001']) {
    const manifest = join(root, folder, 'manifest.json')
    const before = readFileSync(manifest, 'utf8')
    const { files: _, ...old } = JSON.parse(before)
    writeFileSync(manifest, JSON.stringify({ ...old, format: 1 }))
    const kind = folder.startsWith('weights') ? 'weights-damaged' : 'checkpoint-damaged'
    const ofManifest = kind === 'weights-damaged' ? 0 : 1 // the log has no digest of the old weights' manifest
    expect(await problems()).toHaveLength(ofManifest)
    const restore = flipBit(join(root, folder, 'model.safetensors'))
    const found = await problems()
    if (ofManifest === 0)
      expect(found).toMatchObject([{ kind, message: expect.stringMatching(/^the weights in .* but the log says/) }])
    restore()
    writeFileSync(manifest, before)
  }
})

test('a missing manifest is a problem, and so is a missing newest checkpoint; an older one may have been removed', async () => {
  for (const name of ['step-000001', 'step-000002']) {
    rmSync(join(at('checkpoints', name), 'manifest.json'))
    expect(await problems()).toMatchObject([
      { kind: 'checkpoint-damaged', message: expect.stringContaining('missing') },
    ])
    rmSync(at('checkpoints', name), { recursive: true })
    const isNewest = name === 'step-000002'
    expect(await problems()).toMatchObject(isNewest ? [{ kind: 'checkpoint-missing' }] : [])
  }
  rmSync(join(root, 'checkpoints'), { recursive: true }) // a log alone, copied without its files
  expect(await problems()).toEqual([])
})

test('a record of commands that cannot be read is a problem, too', async () => {
  const before = await verified()
  await write([], true)
  const after = await verified()
  expect(after.problems.length).toBe(before.problems.length + 1)
  expect(after.problems[0]!.place).toMatch(/^turns:0:/)
})
