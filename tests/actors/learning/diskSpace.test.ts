import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkDisk } from '../../../actors/learning/diskSpace'
import { recipeSchema } from '../../../config'
import { recordedRecipe } from '../../../config/recordedRecipe'
import { refused } from '../../support/refusal'

const directory = mkdtempSync(join(tmpdir(), 'troupe-disk-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const input = { name: 'test', model: { from: 'directory', path: '/model' } }
const train = (fields: object) => recipeSchema.parse({ ...input, train: fields }).train
const gib = 2 ** 30
const numbers = { parameters: gib, trainedParameters: gib, device: 'cpu' }
const with60 = async () => 60 * gib

test('a run whose checkpoints do not fit its disk is refused with the sum that shows it', async () => {
  const error = await refused(checkDisk(directory, train({ keepCheckpoints: 3, dtype: 'bfloat16' }), numbers, with60))
  expect(error).toMatchObject({ code: 'config.disk_too_small', retriable: false })
  // 5 × (12 + 2) + 3 × 2 bytes a parameter
  expect(error.message).toContain('keeps 76.0 GiB')
  expect(error.message).toContain('room for 60.0 GiB')
  expect(error.message).toContain('5 (train.keepCheckpoints 3 + 2) × (12 bytes × 1.07e9 trained + 2 bytes × 1.07e9)')
  expect(error.hint).toContain('train.keepCheckpoints')
  await checkDisk(directory, train({ keepCheckpoints: 1, dtype: 'bfloat16' }), numbers, with60)
})

test('a run of few steps needs no more than it saves, and adapters need less', async () => {
  await checkDisk(directory, train({ steps: 1, checkpointEvery: 1, dtype: 'bfloat16' }), numbers, with60)
  await checkDisk(directory, train({ lora: {} }), { ...numbers, trainedParameters: 1e6 }, with60)
  const all = train({ steps: 5, keepCheckpoints: 'all', dtype: 'bfloat16' })
  expect((await refused(checkDisk(directory, all, numbers, with60))).message).toContain('all 6 ×')
})

test('what the run left on the disk before counts as room', async () => {
  const small = { parameters: 1000, trainedParameters: 1000, device: 'cpu' }
  const fields = train({ keepCheckpoints: 1, steps: 9 })
  const none = async () => 0
  await refused(checkDisk(directory, fields, small, none))
  mkdirSync(join(directory, 'checkpoints/step-000001'), { recursive: true })
  writeFileSync(join(directory, 'checkpoints/step-000001/file'), Buffer.alloc(60_000))
  await checkDisk(directory, fields, small, none)
})

test('a run of an older version goes on as it did: checkpoints, published type, kernel and sum of gradients', () => {
  const recorded = { ...input, train: { steps: 7, dtype: 'bfloat16' } }
  const old = recipeSchema.parse(recordedRecipe(recorded)).train
  expect(old).toMatchObject({ keepCheckpoints: 'all', publishedDtype: 'float32', steps: 7 })
  expect(old).toMatchObject({ attention: 'sdpa', gradientReduction: 'micro-batch' })
  const now = recipeSchema.parse(recorded)
  expect(now.train).toMatchObject({ keepCheckpoints: 3, publishedDtype: 'bfloat16' })
  expect(now.train).toMatchObject({ attention: 'auto', gradientReduction: 'auto' })
  expect(recipeSchema.parse(recordedRecipe(now))).toEqual(now)
})
