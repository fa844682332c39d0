/** The manifest of a checkpoint with adapters names the base weights; a damaged one is named. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { adaptersBase } from '../../replay/learning/relearn'

const root = join(mkdtempSync(join(tmpdir(), 'troupe-adapters-base-')), 'runs/r')
afterAll(() => rmSync(join(root, '../..'), { recursive: true, force: true }))

const checkpoint = join(root, 'checkpoints/step-000001')
const manifest = join(checkpoint, 'manifest.json')
beforeAll(() => mkdirSync(checkpoint, { recursive: true }))

test('the base is the model that the manifest names, or the checkpoint itself', () => {
  writeFileSync(manifest, '{"adapter": {"model": "model"}}')
  expect(adaptersBase(root, checkpoint)).toBe(join(root, 'model'))
  writeFileSync(manifest, '{"format": 2}')
  expect(adaptersBase(root, checkpoint)).toBe(checkpoint)
})

const damages: Readonly<Record<string, () => void>> = {
  missing: () => {},
  directory: () => mkdirSync(manifest),
  torn: () => writeFileSync(manifest, '{"adapter": {"mod'),
  null: () => writeFileSync(manifest, 'null'),
  'without a model': () => writeFileSync(manifest, '{"adapter": {}}'),
  'of another host': () => writeFileSync(manifest, '{"adapter": {"model": "file://host/model"}}'),
}

test.each(Object.entries(damages))('a manifest that is damaged (%s) is an error with its path', (_, damage) => {
  rmSync(manifest, { recursive: true, force: true })
  damage()
  expect(() => adaptersBase(root, checkpoint)).toThrow(
    expect.objectContaining({ code: 'replay.bad_manifest', message: expect.stringContaining(manifest) }),
  )
})
