/** The vLLM part of `npm run smoke:gpu` runs to its end on a CPU, against a real server. */
import { vllmFigures } from '../support/vllmSmoke'

test('a real server sleeps, wakes with new weights and takes others while awake; its log-probabilities follow', async () => {
  const figures = []
  for await (const figure of vllmFigures('cpu')) figures.push(figure)
  expect(figures.map(({ figure }) => figure)).toEqual([
    'start of the server',
    'difference to transformers',
    'tokens a second, 16 at once',
    'falling asleep, level 2',
    'waking with new weights',
    'difference after waking with new weights',
    'update of weights while awake',
    'difference after an update while awake',
  ])
  expect(figures.filter(({ ok }) => ok !== true)).toEqual([])
}, 300_000)
