/** The tokens at which a model was least sure: which those are, in tables, on a terminal and on a page. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Message } from '../../messages/topics'
import { type SampledToken, topOf, topTable } from '../../replay/tokens/topTokens'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-entropy-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const history = quickstartHistory()
beforeAll(() => saveHistory(directory, history))
const replay = (...args: readonly string[]) => troupeHere(['replay', ...args, '--bus', `lmdb:${directory}`])

const token = (id: number, value: number, turn = 0, position = 0): SampledToken => ({
  token: id,
  value,
  turn,
  position,
  followsTool: turn > 0,
})

test('the top is a share of a trajectory, the earlier of equals, and nothing that was sure', () => {
  const tokens = [0.5, 2, 0, 0.5, 0.1, 1, 0, 0, 0, 0].map((value, i) => token(i, value))
  expect([...topOf(tokens, 0.2)]).toEqual([1, 5])
  expect([...topOf(tokens, 0.3)].sort()).toEqual([0, 1, 5])
  expect([...topOf(tokens, 1)]).toHaveLength(5)
  expect([...topOf([], 0.2)]).toEqual([])
})

test('the table counts tokens at the top of their own trajectory, and those right after a tool response', () => {
  const sure = Array.from({ length: 8 }, (_, i) => token(9, 0, 0, i + 2))
  const first = [token(1, 3), token(2, 1), ...sure]
  const second = [token(2, 0.2), token(1, 0.1, 1, 0), ...sure.slice(0, 6), token(1, 0.05, 1, 9), token(2, 0, 1, 10)]
  const table = topTable([first, second], 0.2)
  expect(table).toMatchObject({ trajectories: 2, sampled: 20, top: 4, afterTool: 2, topAfterTool: 1 })
  expect(table.rows).toEqual([
    { token: 1, top: 2, sampled: 3, meanValue: 1.55, afterTool: 1 },
    { token: 2, top: 2, sampled: 3, meanValue: 0.6, afterTool: 0 },
  ])
})

test('entropy says what it computed, lists tokens, and without a model calls it surprisal', async () => {
  const said = JSON.parse((await replay('entropy', '--all', '--json', '--limit', '5')).stdout) as Record<
    string,
    unknown
  >
  const sampled = history.records.reduce(
    (n, { message: m }) => n + (m.type === 'turn.completed' ? m.tokens.length : 0),
    0,
  )
  expect(said).toMatchObject({ measure: 'surprisal', share: 0.2, trajectories: 88, sampled })
  expect(said.rows).toHaveLength(5)
  const { stdout } = await replay('entropy', 's0001.0000')
  expect(stdout).toContain('for its entropy give --with-model, or set engine.entropies in the recipe')
})

test('entropies that the engine recorded are taken, unless one turn lacks them', async () => {
  const at = join(directory, 'recorded')
  const group = 's0001.0000'
  let left = Number.POSITIVE_INFINITY
  const withEntropies = (m: Message): Message =>
    m.type === 'turn.completed' && left-- > 0
      ? { ...m, entropies: Float32Array.from(m.tokens, token => (token % 7) / 8) }
      : m
  await saveHistory(at, changed(history, withEntropies))
  const entropyOf = async (bus: string) => {
    const { stdout } = await troupeHere(['replay', 'entropy', group, '--json', '--bus', `lmdb:${bus}`])
    return JSON.parse(stdout) as { measure: string; meanValue: number; sampled: number }
  }
  const values = history.records.flatMap(({ message: m }) =>
    m.type === 'turn.completed' && m.trajectory.startsWith(group) ? [...m.tokens].map(token => (token % 7) / 8) : [],
  )
  const said = await entropyOf(at)
  expect(said).toMatchObject({ measure: 'entropy', sampled: values.length })
  expect(said.meanValue).toBeCloseTo(values.reduce((a, b) => a + b, 0) / values.length, 6)
  const partly = join(directory, 'partly')
  left = 3
  await saveHistory(partly, changed(history, withEntropies))
  expect((await entropyOf(partly)).measure).toBe('surprisal')
})

test('the top is marked in the token view, and on a page that loads and runs nothing', async () => {
  const turns = history.records.flatMap(({ message: m }) =>
    m.type === 'turn.completed' && m.trajectory === 's0001.0000/0' ? [m] : [],
  )
  const sampled = turns.reduce((n, t) => n + t.tokens.length, 0)
  const shown = await replay('show', 's0001.0000/0', '--top', '20%')
  expect(shown.stdout.match(/▲/g)).toHaveLength(Math.ceil(0.2 * sampled))
  const file = join(directory, 'page.html')
  expect((await replay('entropy', 's0001.0000/0', '--html', file)).code).toBe(0)
  const page = readFileSync(file, 'utf8')
  expect(page.match(/<span class="[^"]*\btop"/g)).toHaveLength(Math.ceil(0.2 * sampled))
  expect(page).toContain(`default-src 'none'`)
  expect(page).toContain('surprisal 0.')
})

test('a model that is not there, a share of nothing and a page of several are refused', async () => {
  const missing = await replay('entropy', 's0001.0000/0', '--with-model', join(directory, 'none'))
  expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('holds no config.json') })
  expect(await replay('entropy', '--all', '--top', '0')).toMatchObject({ code: 2 })
  const several = await replay('entropy', '--all', '--html', join(directory, 'x.html'))
  expect(several).toMatchObject({ code: 2, stderr: expect.stringContaining('88 were selected') })
})
