/** What-if over a saved history: other selections, other judges, and where two trajectories part. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Message } from '../../messages'
import type { GroupSelected } from '../../messages/facts'
import type { TokenDifference } from '../../replay/trajectories/diffTrajectories'
import type { SelectionReport } from '../../replay/whatIf/explainSelection'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(90_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-what-if-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
beforeAll(() => saveHistory(directory, history))
const replay = (...args: readonly string[]) => troupeHere(['replay', ...args, '--bus', `lmdb:${directory}`])
const selected = history.records.flatMap(r => (r.message.type === 'group.selected' ? [r.message] : []))

test('roc gives every group the decision that was recorded, and what the others would have kept', async () => {
  for (const decision of selected.slice(0, 3)) {
    const { code, stdout } = await replay('roc', decision.group, '--json')
    const report = JSON.parse(stdout) as SelectionReport
    expect({ code, agrees: report.agrees }).toEqual({ code: 0, agrees: true })
    expect(report.variants.paper.advantages).toEqual(
      Object.fromEntries(decision.kept.map(k => [k.member, k.advantage])),
    )
    const sizes = (['paper', 'release', 'none'] as const).map(v => Object.keys(report.variants[v].advantages).length)
    for (const size of sizes) expect([4, 8]).toContain(size)
    expect(Object.keys(report.variants.dynamic.advantages)).toHaveLength(report.members.length)
    const sum = Object.values(report.variants.dynamic.advantages).reduce((a, b) => a + b, 0)
    expect(sum).toBeCloseTo(0, 9)
  }
  const people = await replay('roc', selected[0]!.group, '--explain')
  expect(people.stdout).toContain('p_format')
  expect((await replay('roc', `${selected[0]!.group}/3`, '--explain')).stdout).toBe(people.stdout)
  expect(people.stdout).toContain("today's code selects as recorded")
})

test('roc counts as positive what the recipe does: rewards above selection.positiveAbove', async () => {
  const at = join(directory, 'above')
  const above = (m: Message): Message =>
    m.type === 'run.started'
      ? { ...m, recipe: { ...m.recipe, selection: { ...(m.recipe.selection as object), positiveAbove: 1 } } }
      : m
  await saveHistory(at, changed(history, above))
  const { stdout } = await troupeHere(['replay', 'roc', selected[0]!.group, '--bus', `lmdb:${at}`, '--json'])
  const { variants } = JSON.parse(stdout) as SelectionReport
  for (const { keptPositives, keptNegatives } of [variants.paper, variants.none, variants.dynamic])
    expect([keptPositives, keptNegatives > 0]).toEqual([0, true])
})

test('roc says so, with exit code 1, where the record is not what the code would decide', async () => {
  const at = join(directory, 'other')
  const target = selected[0] as GroupSelected
  await saveHistory(
    at,
    changed(history, m => (m === target ? { ...target, kept: target.kept.slice(1) } : m)),
  )
  const { code, stdout } = await troupeHere(['replay', 'roc', target.group, '--bus', `lmdb:${at}`])
  expect({ code, stdout }).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('selects otherwise than recorded'),
  })
})

test("rescore judges recorded texts again: by the recipe's rule as recorded, by a grader of one's own otherwise", async () => {
  const group = selected[0]!.group
  const same = (await replay('rescore', group, '--json')).stdout
    .trim()
    .split('\n')
    .map(l => JSON.parse(l))
  expect(same.at(-1)).toMatchObject({ type: 'summary', trajectories: 8, changed: 0 })
  const grader = join(directory, 'grader.js')
  writeFileSync(
    grader,
    "let n = 0\nexports.grade = ({ truth }) => ({ reward: Math.floor(n++ / 8) % 2, answer: truth, how: 'mine' })\n",
  )
  const mine = await replay('rescore', group, '--times', '4', '--grader', grader, '--json')
  const all = mine.stdout
    .trim()
    .split('\n')
    .map(l => JSON.parse(l))
  expect(all.at(-1)).toMatchObject({ trajectories: 8, times: 4, changed: 8, unsteady: 8 })
  expect(all[0]).toMatchObject({ mean: 0.5, how: 'mine' })
  const none = join(directory, 'none.js')
  writeFileSync(none, 'exports.other = 1\n')
  expect((await replay('rescore', group, '--grader', none)).stderr).toContain("exports no function 'grade'")
})

test('rescore --literal --changed lists the answers that restate an integer truth, and counts them', async () => {
  const at = join(directory, 'literal')
  const group = selected[0]!.group
  const restated = `${group}/1`
  await saveHistory(
    at,
    changed(history, m => {
      if (m.type === 'rollout.requested') return { ...m, task: { ...m.task, truth: '5' } }
      if (m.type === 'reward.assigned') return { ...m, reward: 1 }
      if (m.type !== 'turn.completed') return m
      return { ...m, text: `<answer>\\boxed{${m.trajectory === restated ? '2^{3} - 3' : '5.0'}}</answer>` }
    }),
  )
  const rescored = async (...args: string[]) => {
    const { stdout } = await troupeHere(['replay', 'rescore', group, '--json', ...args, '--bus', `lmdb:${at}`])
    return stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line))
  }
  expect((await rescored()).at(-1)).toMatchObject({ trajectories: 8, changed: 0 })
  expect(await rescored('--literal', '--changed')).toEqual([
    expect.objectContaining({ trajectory: restated, recorded: 1, mean: 0, how: 'literal' }),
    expect.objectContaining({ type: 'summary', trajectories: 8, changed: 1 }),
  ])
})

test('a grader that never answers or throws ends with what it did; what it cannot judge is in no mean', async () => {
  const group = selected[0]!.group
  const by = async (code: string, ...more: string[]) => {
    const file = join(directory, `${code.length}.js`)
    writeFileSync(file, `exports.grade = ${code}\n`)
    return replay('rescore', group, '--grader', file, '--json', ...more)
  }
  const mute = await by('() => new Promise(() => {})', '--timeout-ms', '50')
  expect(mute).toMatchObject({ code: 2, stderr: expect.stringContaining('the grader did not answer within 50 ms') })
  const broken = await by("() => { throw new TypeError('no such field') }")
  expect(broken).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/s\d+\.\d+\/\d+ could not be graded: no such/),
  })
  const some = await by(
    "({ response }) => ({ reward: response.length % 2 ? 1 : null, answer: '', how: 'h', why: 'w' })",
  )
  const said = some.stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { type?: string; mean: number | null; unjudged: number; rescoredMean: number })
  const unjudged = said.filter(({ type, mean }) => type === undefined && mean === null).length
  expect(unjudged).toBeGreaterThan(0)
  expect(said.at(-1)).toMatchObject({ trajectories: 8, unjudged, rescoredMean: 1 })
})

test("the recipe's own graders keep --timeout-ms themselves: a sandbox that has to be opened costs no answer", async () => {
  const at = join(directory, 'cold')
  await saveHistory(
    at,
    changed(history, m => (m.type === 'rollout.requested' ? { ...m, task: { ...m.task, truth: 'x + 1' } } : m)),
  )
  const args = ['replay', 'rescore', selected[0]!.group, '--timeout-ms', '500', '--json', '--bus', `lmdb:${at}`]
  const { code, stdout } = await troupeHere(args)
  expect({ code, summary: JSON.parse(stdout.trim().split('\n').at(-1)!) }).toMatchObject({
    code: 0,
    summary: { trajectories: 8, unjudged: 0, rescoredMean: 0 },
  })
})

test('rescore --second says where arithmetic contradicts the record, and judges nothing that it cannot tell', async () => {
  const at = join(directory, 'second')
  const group = selected[0]!.group
  let judged = 0
  const doubtful = changed(history, m => {
    if (m.type !== 'reward.assigned' || !m.trajectory.startsWith(`${group}/`)) return m
    judged++
    if (judged === 1) return { ...m, reward: 1 - m.reward }
    return judged === 2 ? { ...m, answer: 'x + 1', how: 'math-verify' } : m
  })
  await saveHistory(at, doubtful)
  const second = (...args: string[]) =>
    troupeHere(['replay', 'rescore', group, '--second', '--json', ...args, '--bus', `lmdb:${at}`])
  const said = (await second()).stdout
    .trim()
    .split('\n')
    .map(l => JSON.parse(l))
  expect(said.at(-1)).toMatchObject({ trajectories: 7, changed: 1 })
  expect(said.slice(0, -1).every(({ how }) => how === 'arithmetic')).toBe(true)
  expect((await second('--place', 'anywhere')).code).toBe(2)
  expect((await second('--changed')).stdout.trim().split('\n')).toHaveLength(2)
})

test('diff names the first token at which two trajectories part, and finds none between one and itself', async () => {
  const group = 's0001.0000'
  const { code, stdout } = await replay('diff', `${group}/3`, `${group}/1`, '--json')
  const { same, difference } = JSON.parse(stdout) as { same: boolean; difference: TokenDifference }
  expect({ code, same }).toEqual({ code: 1, same: false })
  const turns = history.records.flatMap(r =>
    r.message.type === 'turn.completed' && r.message.turn === 0 ? [r.message] : [],
  )
  const [a, b] = [3, 1].map(k => turns.find(t => t.trajectory === `${group}/${k}`)!.tokens)
  const prompt = history.records.flatMap(r => (r.message.type === 'rollout.requested' ? [r.message] : []))
  const begin = prompt.find(p => p.group === group)!.tokens.length
  let first = 0
  while (a![first] === b![first]) first++
  expect(difference).toMatchObject({
    common: begin + first,
    a: { where: 'turn 0', token: a![first] },
    b: { where: 'turn 0', token: b![first] },
  })
  const itself = await replay('diff', `${group}/3`, `${group}/3`)
  expect(itself).toMatchObject({ code: 0, stdout: expect.stringContaining('every token is the same') })
})

test('the responses of one evaluation are scored again by another place for the answer, apart from all others', async () => {
  const evaluated = history.records.flatMap(({ message }) =>
    message.type === 'reward.assigned' && message.trajectory.startsWith('e0000.') ? [message] : [],
  )
  expect(evaluated.length).toBeGreaterThan(0)
  const { code, stdout } = await replay('rescore', 'e0000', '--place', 'last-number', '--json')
  const lines = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))
  expect(code).toBe(0)
  const mean = evaluated.reduce((sum, { reward }) => sum + reward, 0) / evaluated.length
  expect(lines.at(-1)).toMatchObject({ type: 'summary', trajectories: evaluated.length, recordedMean: mean })
  // The last number of these texts is the boxed answer, or one that the model gave without a box.
  for (const line of lines.slice(0, -1)) expect(line.mean).toBeGreaterThanOrEqual(line.recorded)
})
