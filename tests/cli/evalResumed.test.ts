/** `eval --resume` on runs that were recorded: no engine is started. What is shown of their results, and what is refused. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { EvaluationCompleted, Fact } from '../../messages/facts'
import { epoch, groupId, policyVersion, runId, taskId, trajectoryId } from '../../messages/ids'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { openRun } from '../../runtime/openRun'
import { troupe } from '../support/cli'
import { requested } from '../support/facts'

jest.setTimeout(240_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-resumed-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const bus = `lmdb:${join(directory, 'bus')}`
const model = join(directory, 'model')
const data = join(directory, 'data')

/** A run of AIME 2024 that is over, with answers to its one or two problems. */
async function recorded(run: string, result: Partial<EvaluationCompleted>, ...more: readonly Fact[]): Promise<void> {
  const fields = {
    ...{ 'model.path': model, 'data.file': join(data, 'aime24.jsonl'), 'evaluation.problems': 2 },
    ...{ 'limits.contextTokens': 512, 'limits.responseTokens': 512, 'evaluation.samples': 4 },
    ...{ 'engine.kvTokens': 65_536, 'engine.maxSequences': 64 },
  }
  const set = Object.entries(fields).map(([path, value]) => `${path}=${JSON.stringify(value)}`)
  const recipe = loadRecipe('eval-aime24', set).config.value as unknown as Readonly<Record<string, unknown>>
  const digests = { recipeDigest: 'd', codeDigest: 'd', tokenizerDigest: 'd' }
  const opened = await openRun(bus, run, 'write')
  await opened.journal.create(1)
  const started = { at: 0, run: runId(run), recipe, ...digests, seed: 1, versions: {}, partitions: {} }
  await opened.journal.append([
    { type: 'run.started', ...started },
    ...more,
    {
      ...{ type: 'evaluation.completed', at: 1, name: 'held-out', step: 0, version: policyVersion(0), passAt1: 0.5 },
      ...{ standardError: 0, n: 2, samples: 4, metrics: {}, asked: { problems: 2, samples: 4 }, ...result },
    },
    {
      ...{ type: 'run.finished', at: 2, run: runId(run), outcome: 'done', reason: 'all steps are done' },
      ...{ steps: 0, summary: {} },
    },
  ])
  await opened.bus.close()
}

beforeAll(async () => {
  for (const made of [model, data]) mkdirSync(made)
  writeFileSync(join(model, 'config.json'), '{"max_position_embeddings": 512}')
  for (const name of ['aime24', 'aime25']) {
    const rows = [1, 2].map(n => JSON.stringify({ problem: `${name} ${n}`, answer: String(n) }))
    writeFileSync(join(data, `${name}.jsonl`), rows.join('\n'))
  }
})

const evaluate = (name: string, ...args: readonly string[]) => troupe(['eval', name, '--bus', bus, ...args]).done

test('a result of fewer problems than were asked says so and is no success; one of no problem has no score', async () => {
  const answered = (member: number, how: string): Fact[] => {
    const trajectory = trajectoryId(groupId('e0000.0000'), member)
    const task = { ...requested('g', 0).task, id: taskId('aime24/1') }
    const counts = { turns: 1, sampledTokens: 1, toolCalls: 0, toolErrors: 0, answerTags: 0 }
    return [
      requested('e0000.0000', member, { purpose: 'eval', step: 0, order: member, task }),
      { type: 'rollout.finished', at: 0, trajectory, epoch: epoch(0), outcome: 'answered', reason: '', ...counts },
      { type: 'reward.assigned', at: 0, trajectory, attempt: 0, reward: 0, answer: '', how },
    ]
  }
  const how = ['integer', 'no-answer', 'no-answer', 'math-verify-timeout'].flatMap((one, k) => answered(k, one))
  await recorded('part', { n: 1 }, ...how)
  await recorded('none', { n: 0, samples: 0, passAt1: 0, metrics: { unjudged: 8 } })
  await recorded('whole', {})
  const file = join(directory, 'part.md')
  const part = await evaluate('aime24', '--resume', 'part', '--report', file)
  expect(part).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('50.0 ± 0.0 %'),
    stderr: expect.stringContaining('AIME 2024: only 1 of 2 problems have a judged answer'),
  })
  expect(part.stdout).toContain('(1 of 2 problems)')
  expect(part.stderr).toContain('AIME 2024: only 1 of 2 problems have a judged answer')
  expect(part.stderr).toContain('how answers were judged: no-answer 2, integer 1, math-verify-timeout 1')
  const markdown = readFileSync(file, 'utf8')
  expect(markdown).toMatch(/how answers were judged +\| no-answer 2, integer 1, math-verify-timeout 1 /)
  expect(markdown).toMatch(/problems × samples +\| 1 of 2 × 4 /)
  const json = JSON.parse(readFileSync(join(directory, 'part.json'), 'utf8')) as object[]
  expect(json).toMatchObject([{ passAt1: 0.5, n: 1, asked: { problems: 2, samples: 4 }, model }])

  const none = await evaluate('aime24', '--resume', 'none', '--json', '--report', file)
  expect(none.code).toBe(1)
  const lines = none.stdout.trim().split('\n')
  expect(lines.map(line => JSON.parse(line) as object)).toMatchObject([
    { type: 'evaluation', passAt1: null, standardError: null, n: 0, asked: { problems: 2, samples: 4 } },
    { type: 'summary', evalBefore: { passAt1: null, n: 0 } },
  ])
  expect(readFileSync(file, 'utf8')).toMatch(/pass@1 +\| – /)
  expect(readFileSync(file, 'utf8')).toMatch(/this model +\| – +\| – /)
  expect(JSON.parse(readFileSync(join(directory, 'part.json'), 'utf8'))).toMatchObject([{ passAt1: null }])
  const ours = /AIME 2024 · this model<\/text>\n(.*)/.exec(readFileSync(join(directory, 'part.svg'), 'utf8'))
  expect(ours?.[1]).toMatch(/>–<\/text>$/)

  expect(await evaluate('aime24', '--resume', 'whole')).toMatchObject({ code: 0 })
})

test("a run is not taken for another benchmark's, and options that it was not begun with are refused by name", async () => {
  await recorded('mine', {})
  const other = await evaluate('aime25', '--resume', 'mine')
  expect(other).toMatchObject({ code: 2, stdout: '' })
  expect(other.stderr).toContain(
    "run 'mine' was started with the recipe 'eval-aime24', but this command names 'eval-aime25'",
  )
  const dropped = await evaluate('aime24', '--resume', 'mine', '--samples', '8', '--model', model)
  expect(dropped.stderr).toContain('--model, --samples cannot be combined with --resume')
  expect(dropped).toMatchObject({ code: 2, stdout: '' })

  await recorded('all-aime24', {})
  const again = ['--resume', 'all', '--data', data, '--model', model, '--report', join(directory, 'all.md')]
  const changed = await evaluate('all', ...again, '--samples', '8')
  expect(changed).toMatchObject({ code: 2, stdout: '' })
  expect(changed.stderr).toContain('started with other values than these options give: evaluation.samples=8')
  rmSync(join(data, 'aime25.jsonl'))
  expect(await evaluate('all', ...again, '--samples', '4')).toMatchObject({ code: 0 })
})
