/** A run knows its recipe: `train --resume RUN` needs no name of it. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { recordRunStart } from '../../../actors/run/runStart'
import { recordedSource } from '../../../cli/train/startedRun'
import { loadRecipe, sourceOf } from '../../../recipes/load/loadRecipe'
import { systemEffects } from '../../../runtime/effects'
import { openRun } from '../../../runtime/openRun'

jest.setTimeout(30_000)

const folder = mkdtempSync(join(tmpdir(), 'troupe-source-'))
afterAll(() => rmSync(folder, { recursive: true }))
const bus = `lmdb:${join(folder, 'bus')}`

async function start(run: string, source?: string): Promise<void> {
  const opened = await openRun(bus, run, 'write')
  const { value: config } = loadRecipe('quickstart').config
  await opened.journal.create(1)
  await recordRunStart(opened.journal, {
    ...{ run: opened.run, config, resume: false, acceptCode: false, versions: {}, partitions: 1, tokenizerDigest: 'd' },
    ...{ fx: systemEffects, ...(source === undefined ? {} : { source }) },
  })
  await opened.bus.close()
}

test('a name is kept, a file by its absolute path; without either, and if the file is gone, the recipe has to be named', async () => {
  const file = join(folder, 'mine.yaml')
  writeFileSync(file, 'extends: quickstart\n')
  await start('named', sourceOf('quickstart'))
  await start('own', sourceOf(file))
  await start('old')
  expect(await recordedSource(bus, 'named')).toBe('quickstart')
  expect(await recordedSource(bus, 'own')).toBe(file)
  const unknown = { code: 'run.unknown_recipe', hint: 'name the recipe: troupe train RECIPE --resume old' }
  await expect(recordedSource(bus, 'old')).rejects.toMatchObject(unknown)
  rmSync(file)
  await expect(recordedSource(bus, 'own')).rejects.toThrow(`its recipe ${file} is gone`)
})
