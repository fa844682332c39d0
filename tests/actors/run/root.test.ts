/** What startRun refuses before it opens anything of the run. */
import { startRun } from '../../../actors/run/root'
import type { RunOptions } from '../../../actors/run/run'
import { recipeSchema } from '../../../config'
import { refused } from '../../support/refusal'

const config = recipeSchema.parse({
  name: 'r',
  model: { from: 'directory', path: '/m' },
  rollout: { maxStaleness: 1 },
})

test('a new run that would train on stale tokens uncorrected is refused; a resume and a rollout are not', async () => {
  // The options lack everything else, so whatever startRun opens fails.
  const begin = (given: Partial<RunOptions>) => refused(startRun({ config, ...given } as RunOptions))
  expect(await begin({ learns: true, resume: false })).toMatchObject({
    code: 'config.invalid',
    message: expect.stringContaining('train.correction: rollout.maxStaleness 1'),
  })
  for (const given of [
    { learns: true, resume: true },
    { learns: false, resume: false },
  ]) {
    expect((await begin(given)).message).not.toContain('train.correction')
  }
})
