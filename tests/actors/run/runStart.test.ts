/** `run.started` records what `auto` stands for; a process that joins is compared with what it resolves itself. */
import { checkRecipe, recordRunStart, startOf } from '../../../actors/run/runStart'
import { recipeSchema } from '../../../config'
import { runId } from '../../../messages/ids'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { dataDigest } from '../../../runtime/digests'
import { systemEffects } from '../../../runtime/effects'
import { openJournal } from '../../../runtime/journal/openJournal'

const of = (name: string, ...set: string[]) => loadRecipe(name, set).config.value

async function started(config: ReturnType<typeof of>) {
  const bus = openMemoryBus()
  try {
    const journal = openJournal(bus, memoryBlobs(), runId('r'))
    await journal.create(1)
    const options = { resume: false, acceptCode: false, versions: {}, partitions: 1, tokenizerDigest: '' }
    await recordRunStart(journal, { run: runId('r'), config, fx: systemEffects, ...options })
    return (await startOf(journal))!
  } finally {
    await bus.close()
  }
}

test('the reduction that auto stands for is recorded, so that a resume keeps it under another estimate', async () => {
  for (const [name, value] of [
    ['rstar2', 'update'],
    ['rstar2-8gpu', 'micro-batch'],
  ] as const) {
    const { recipe } = await started(of(name))
    expect(recipeSchema.parse(recipe).train.gradientReduction).toBe(value)
  }
})

test('an alarm of a disk that was full before the run began does not hide its run.started', async () => {
  const bus = openMemoryBus()
  try {
    const journal = openJournal(bus, memoryBlobs(), runId('r'))
    await journal.create(1)
    await journal.append([{ type: 'alarm.raised', at: 1, alarm: 'disk-full', message: 'the run pauses' }])
    expect(await startOf(journal)).toBeUndefined()
    const common = { run: runId('r'), config: of('quickstart'), fx: systemEffects, acceptCode: false, versions: {} }
    await recordRunStart(journal, { ...common, resume: false, partitions: 1, tokenizerDigest: '' })
    await recordRunStart(journal, { ...common, resume: true, partitions: 1, tokenizerDigest: '' })
    expect(await startOf(journal)).toMatchObject({ type: 'run.started', run: 'r' })
  } finally {
    await bus.close()
  }
})

test('a process joins a run whose auto it resolves alike, and is refused where its own is another one', async () => {
  const fact = await started(of('rstar2'))
  expect(() => checkRecipe(fact, of('rstar2'))).not.toThrow()
  expect(() => checkRecipe(fact, of('rstar2', 'hardware.memoryGib=80'))).toThrow('fields that differ: train, hardware')
  expect(() => checkRecipe(fact, of('rstar2', 'train.gradientReduction=micro-batch'))).toThrow(
    'fields that differ: train',
  )
  // A run of an earlier version recorded `auto`.
  const old = { ...fact, recipe: of('rstar2'), recipeDigest: dataDigest(of('rstar2')) }
  expect(() => checkRecipe(old as unknown as typeof fact, of('rstar2'))).not.toThrow()
})
