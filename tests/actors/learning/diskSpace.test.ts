import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkDisk } from '../../../actors/learning/diskSpace'
import { recipeSchema } from '../../../config'
import { recordedRecipe } from '../../../config/recordedRecipe'
import { diskPause } from '../../../runtime/disk/diskPause'
import type { Space } from '../../../runtime/disk/freeSpace'
import { manualEffects } from '../../../runtime/effects'
import { createLog } from '../../../runtime/log'
import { refused } from '../../support/refusal'

const directory = mkdtempSync(join(tmpdir(), 'troupe-disk-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const input = { name: 'test', model: { from: 'directory', path: '/model' } }
const train = (fields: object) => recipeSchema.parse({ ...input, train: fields }).train
const gib = 2 ** 30
const numbers = { parameters: gib, trainedParameters: gib, device: 'cpu' }
const log = createLog('test', { level: 'silent' })
/** A check on a disk that reads `space` at each look. */
const on = (space: Space) => {
  const spaceOf = () => ({ ...space })
  return { disk: diskPause({ fx: manualEffects(), log, spaceOf, lookEveryMs: 1 }), log, spaceOf }
}
const with60 = on({ freeBytes: 60 * gib, bytes: 100 * gib })

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

const small = { parameters: 1000, trainedParameters: 1000, device: 'cpu' }
const kept = train({ keepCheckpoints: 1, steps: 9 })
const later = () => new Promise(resolve => setTimeout(resolve, 20))

test('a run that begins on a full disk waits until there is room, and only then is its need compared', async () => {
  const space = { freeBytes: 0, bytes: 100 * gib }
  let ended: unknown
  const check = (numbersOf: typeof small) =>
    checkDisk(directory, kept, numbersOf, on(space)).then(
      () => 'fits',
      thrown => (thrown as { code: string }).code,
    )
  const checks = [check(small), check(numbers)].map(one => one.then(code => (ended = code)))
  await later()
  expect(ended).toBeUndefined()
  space.freeBytes = gib
  expect(await Promise.all(checks)).toEqual(['fits', 'config.disk_too_small'])
})

test('a run that has left checkpoints is refused only by a disk that could never hold them, not by a full one', async () => {
  mkdirSync(join(directory, 'checkpoints/step-000001'), { recursive: true })
  writeFileSync(join(directory, 'checkpoints/step-000001/file'), Buffer.alloc(1000))
  await checkDisk(directory, kept, small, on({ freeBytes: 0, bytes: gib }))
  const error = await refused(checkDisk(directory, kept, numbers, on({ freeBytes: gib, bytes: gib })))
  expect(error).toMatchObject({ code: 'config.disk_too_small', retriable: false })
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
