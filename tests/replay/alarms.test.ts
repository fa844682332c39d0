/** `replay alarms`: what a run would have been told, by the same fold as a live one. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { topicOnBus } from '../../messages/topics'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-alarms-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
beforeAll(() => saveHistory(directory, quickstartHistory()))

const alarms = (...args: string[]) => troupeHere(['replay', 'alarms', '--bus', `lmdb:${directory}`, ...args])
const lines = (text: string) =>
  text
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line) as { alarm: string; step: number; message: string })

test('every step is looked at, with bounds of one beside those that have names', async () => {
  const { code, stdout, stderr } = await alarms(
    ...['--json', '--alarm', '{name: many, metric: rollouts, above: 0, for: 2}'],
    ...['--alarm', '{name: reward-collapse, below: 2, for: 3}', '--alarm', '{name: never, metric: loss, above: 1000}'],
  )
  const raised = lines(stdout)
  expect(raised.filter(({ alarm }) => alarm === 'many')).toMatchObject([
    { step: 2, message: expect.stringMatching(/^rollouts is \d+, above 0 for 2 steps, at step 2$/) },
  ])
  const [collapse] = raised.filter(({ alarm }) => alarm === 'reward-collapse')
  expect(collapse).toMatchObject({ step: 3, message: expect.stringMatching(/below 2 for 3 steps.*look at `replay ls/) })
  expect(raised.some(({ alarm }) => alarm === 'never')).toBe(false)
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^3 steps, 19 alarms: \d+ raised\n$/) })
})

test('dead letters and a grader that arithmetic contradicts are told of a log that had no alarms', async () => {
  const at = join(directory, 'doubtful')
  const history = quickstartHistory()
  let judged = 0
  const doubtful = changed(history, m => {
    if (m.type !== 'reward.assigned' || !m.trajectory.startsWith('s0002') || judged++ % 8 > 0) return m
    return { ...m, reward: 1 - m.reward }
  })
  const topic = topicOnBus(history.run, 'dead-letters')
  const letter = (offset: number) => ({
    ...{ topic, key: 'k', value: Buffer.from('not ours') },
    headers: { origin: `troupe.history.turns:0:${offset}`, error: 'torn' },
  })
  await saveHistory(at, doubtful, [letter(1), letter(2), letter(2)])
  const { code, stdout } = await troupeHere(['replay', 'alarms', '--json', '--bus', `lmdb:${at}`])
  const raised = lines(stdout)
  expect(raised.filter(({ alarm }) => alarm === 'dead-letters')).toMatchObject([
    { step: null, message: expect.stringMatching(/^2 after step 3: .*`replay verify`/) },
  ])
  expect(raised.filter(({ alarm }) => alarm === 'verifier-disagreement')).toMatchObject([
    { step: 2, message: expect.stringMatching(/^disagreeShare is 0\.\d+, above 0.02 .*--second/) },
  ])
  expect(code).toBe(1)
})

test.each([
  ['{name: mine}', /metric: missing/],
  ['{name: mine, metric: los, above: 1}', /unknown metric 'los'; did you mean 'loss'/],
  ['{name: [', /--alarm/],
])('an alarm that is none is refused: %s', async (text, said) => {
  const { code, stderr } = await alarms('--alarm', text)
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(said) })
})
