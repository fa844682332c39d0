/** What `train` says of a run while it lasts. */
import { trainView } from '../cli/trainView'
import { manualEffects } from '../runtime/effects'
import { type RecipeConfig, recipeSchema } from '../runtime/recipe'

const config: RecipeConfig = recipeSchema.parse({ name: 'x', model: { from: 'directory', path: '/m' } })

test('records that are left out are named as they are met, each once, the first five, and cannot drive the terminal', () => {
  const said: string[] = []
  const spy = jest.spyOn(process.stderr, 'write').mockImplementation(text => said.push(String(text)) > 0)
  try {
    const view = trainView({ json: true, config, run: 'r', fx: manualEffects() })
    for (let offset = 0; offset < 9; offset++) {
      const fact = {
        type: 'record.refused',
        at: 0,
        origin: `troupe.r.turns:0:${offset}`,
        error: '\u001b[2Jtorn',
      } as const
      view.refused(fact)
      view.refused(fact)
    }
  } finally {
    spy.mockRestore()
  }
  expect(said).toHaveLength(6)
  expect(said[0]).toBe('left out troupe.r.turns:0:0, which could not be read or lived with: \\u001b[2Jtorn\n')
  expect(said[5]).toContain('`troupe replay verify` lists all')
})
