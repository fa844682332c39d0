/** A whole evaluation, small: a random model, the real engine, sandbox and grader, driven by the command line. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { modelOf } from '../../actors/model'
import { loadRecipe } from '../../cli/recipes'
import type { Message } from '../../messages'
import { messagesOf, troupe } from '../support/cli'
import { until } from '../support/until'

jest.setTimeout(240_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const turnsOf = (facts: readonly Message[]) =>
  facts.flatMap(f => (f.type === 'turn.completed' ? [`${f.trajectory}#${f.turn}`] : []))

test('an evaluation that is killed goes on, generates no finished turn again, and counts each answer once', async () => {
  const { recipe, config } = loadRecipe('quickstart', [
    'coldStart.demonstrations=200',
    'model.config.max_position_embeddings=2048',
  ])
  const demonstrations = () => recipe.demonstrations!(config.value)
  const model = await modelOf(config.value, join(directory, 'model'), demonstrations)
  const data = join(directory, 'gsm8k.jsonl')
  const rows = Array.from({ length: 6 }, (_, n) => ({ question: `What is ${n} + ${n}?`, answer: `#### ${2 * n}` }))
  writeFileSync(data, `${rows.map(row => JSON.stringify(row)).join('\n')}\nnot a row\n`)
  const bus = join(directory, 'bus')
  const args = ['eval', 'gsm8k', '--json', '--bus', `lmdb:${bus}`]
  const how = ['--model', model.directory, '--data', data, '--samples', '64', '--max-tokens', '160', '--turns', '4']
  const first = troupe([...args, ...how, '--run', 'r'])
  let before: Message[] = []
  await until(
    async () => {
      if (first.process.exitCode !== null) throw new Error((await first.done).stderr)
      before = await messagesOf(bus, 'r', 'trajectories')
      return turnsOf(before).length >= 3
    },
    120_000,
    10,
  )
  first.process.kill('SIGKILL')
  expect((await first.done).stderr).toContain('left out: 1 rows: not JSON')
  before = await messagesOf(bus, 'r', 'trajectories')
  expect(before.filter(f => f.type === 'rollout.finished').length).toBeLessThan(384) // it did not end by itself

  const { code, stdout, stderr } = await troupe([...args, '--resume', 'r']).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const lines = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Record<string, unknown>)
  expect(lines).toMatchObject([
    { type: 'evaluation', n: 6 },
    { type: 'summary', run: 'r', outcome: 'done' },
  ])
  const after = turnsOf(await messagesOf(bus, 'r', 'trajectories'))
  expect(new Set(after).size).toBe(after.length)
  expect(after).toEqual(expect.arrayContaining(turnsOf(before)))
})
