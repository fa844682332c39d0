import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { detailsOf } from '../../../cli/eval/details'
import { besideThePaper, reportOf } from '../../../cli/eval/report'
import type { EvaluationCompleted } from '../../../messages/facts'
import { policyVersion, runId } from '../../../messages/ids'
import { benchmarks, readProblems } from '../../../recipes/benchmarks'
import { parseProblems } from '../../../recipes/benchmarks/rows'
import { parseGsm8k } from '../../../recipes/gsm8k/rows'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { parseProblemRows } from '../../../recipes/problems/rows'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { openJournal } from '../../../runtime/journal/openJournal'
import { requested } from '../../support/facts'

const contest = { question: ['problem'], answer: ['answer'], truth: 'integer' } as const

const directory = mkdtempSync(join(tmpdir(), 'troupe-test-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** A row of each benchmark in the form in which its owners publish it, and the truth that it states. Problems are ours. */
const published = [
  ['aime24', { problem: 'Find $n$ if $n + 3 = 207$.', answer: '204' }, '204'],
  ['aime25', { problem: 'Find the sum of $b>9$ with $b \\mid 49$.', answer: '70' }, '70'],
  [
    'hmmt25',
    { problem: 'Compute $\\sqrt{2} + \\frac{1}{2}$.', answer: '\\frac{1}{2} + \\sqrt{2}' },
    '\\frac{1}{2} + \\sqrt{2}',
  ],
  [
    'math500',
    { problem: 'Convert $(0,3)$.', answer: '\\left( 3, \\frac{\\pi}{2} \\right)', subject: 'Precalculus', level: 2 },
    '\\left( 3, \\frac{\\pi}{2} \\right)',
  ],
  [
    'gsm8k',
    { question: 'Eggs for $2 each, 1,009 of them?', answer: 'It is 2 * 1009 = <<2*1009=2018>>2018.\n#### 2,018' },
    '2018',
  ],
] as const

test.each(published)('%s is read from a file in its published form', async (name, row, truth) => {
  const file = join(directory, `${name}.jsonl`)
  writeFileSync(file, `${JSON.stringify(row)}\n`)
  const { problems, dropped } = await readProblems(benchmarks.get(name)!, file)
  expect(dropped).toEqual({})
  expect(problems).toMatchObject([{ question: 'problem' in row ? row.problem : row.question, truth }])
})

test('every row is a problem or counted under one reason', () => {
  const rows = [
    '{"id": "a", "problem": "1+1", "answer": 2}',
    '{"id": "b", "problem": "1+1", "answer": "2"}',
    '',
    'no JSON',
    '[1]',
    '{"answer": "2"}',
    '{"problem": "1+3"}',
    '{"problem": "a half", "answer": "1/2"}',
    '{"id": 7, "problem": "1+4", "answer": "005"}',
  ]
  expect(parseProblems(rows.join('\n'), contest)).toEqual({
    problems: [
      { id: 'a', question: '1+1', truth: '2' },
      { id: '7', question: '1+4', truth: '5' },
    ],
    dropped: {
      'repeats the question of an earlier row': 1,
      'not JSON': 1,
      'not an object': 1,
      'no problem': 1,
      'no answer': 1,
      'answer is not an integer': 1,
    },
  })
})

test('an id that is there twice, or is missing where others have one, is refused with its line', () => {
  const row = (id: unknown, n: number) => JSON.stringify({ id, problem: `${n}+0`, answer: n })
  const read = (...lines: string[]) => parseProblems(lines.join('\n'), contest)
  expect(() => read(row('a', 1), row('b', 2), '', row('a', 3))).toThrow("line 4: id 'a' is already used at line 1")
  expect(() => read(row('a', 1), row(undefined, 2))).toThrow('line 2: the row has no id, but line 1 has one')
  expect(read(row(undefined, 1), row(undefined, 2)).problems.map(({ id }) => id)).toEqual(['1', '2'])
})

test('a JSON array is read as lines are', () => {
  const rows = [1, 2, 3].map(n => ({ problem: `${n}+0`, answer: n }))
  const { problems } = parseProblems(JSON.stringify(rows, null, 2), contest)
  expect(problems.map(({ id, truth }) => [id, truth])).toEqual(rows.map(({ answer }) => [`${answer}`, `${answer}`]))
})

test('a number keeps its digits, however many', () => {
  const row = '{"problem": "large", "id": 10000000000000000001, "answer": 12345678901234567891}'
  for (const text of [row, `[${row}]`])
    expect(parseProblems(text, contest).problems).toEqual([
      { id: '10000000000000000001', question: 'large', truth: '12345678901234567891' },
    ])
  expect(parseProblemRows(row).rows[0]).toMatchObject({ id: '10000000000000000001', answer: '12345678901234567891' })
  const worked = '{"problem": "large", "solution": "So.", "answer": 12345678901234567891}'
  expect(parseGsm8k(worked).rows[0]).toMatchObject({ truth: '12345678901234567891' })
})

test('no file makes the reader throw, and nothing is lost uncounted', () => {
  const line = fc.oneof(fc.string(), fc.json(), fc.constantFrom('{"problem":"p","answer":"1"}', '[', '{"problem":1}'))
  fc.assert(
    fc.property(fc.array(line.map(text => text.replaceAll('\n', ' '))), lines => {
      const { problems, dropped } = parseProblems(`x\n${lines.join('\n')}`, { ...contest, truth: 'text' })
      const counted = problems.length + Object.values(dropped).reduce((sum, n) => sum + n, 0)
      expect(counted).toBe(1 + lines.filter(text => text.trim() !== '').length)
    }),
  )
})

test('a file that is not there, or holds no problem, is refused with what its rows must be', async () => {
  const aime = benchmarks.get('aime24')!
  await expect(readProblems(aime, join(directory, 'none.jsonl'))).rejects.toMatchObject({ code: 'config.no_data' })
  const file = join(directory, 'other.jsonl')
  writeFileSync(file, '{"text": "1"}\n{"text": "2"}\n')
  await expect(readProblems(aime, file)).rejects.toMatchObject({
    message: expect.stringContaining('2 no problem'),
    hint: expect.stringContaining('"problem"'),
  })
})

test("a benchmark is a recipe under eval-NAME, by the paper's protocol", () => {
  const { config } = loadRecipe('eval-aime25', ['data.file=x.jsonl', 'evaluation.problems=30'])
  expect(config.value).toMatchObject({
    train: { steps: 0 },
    evaluation: { samples: 16, temperature: 0.6, problems: 30 },
    limits: { responseTokens: 30_000, turns: 30 },
  })
})

test('a truth is doubted where samples agree against it, not where a judge compares, computes or checks', async () => {
  const bus = openMemoryBus()
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  const hows = ['integer', 'math-verify', 'choice', 'exact', 'arena-hard', 'ifeval-strict', 'bfcl-simple', 'python']
  const judged = hows.flatMap(how =>
    [0, 1, 2].flatMap(member => {
      const asked = requested(how, member)
      const reward = { attempt: 0, reward: 0, answer: member < 2 ? '5' : '6', how }
      return [asked, { type: 'reward.assigned', at: 0, trajectory: asked.trajectory, ...reward } as const]
    }),
  )
  await journal.append(judged)
  const { suspects } = await detailsOf(journal)
  expect(suspects).toEqual(Array(4).fill({ task: 't', truth: '4', answer: '5', samples: 2 }))
  await bus.close()
})

test('a report puts the result beside the paper', () => {
  const result: EvaluationCompleted = {
    type: 'evaluation.completed',
    at: 0,
    name: 'held-out',
    step: 0,
    version: policyVersion(0),
    passAt1: 0.125,
    standardError: 0.05,
    n: 30,
    samples: 16,
    metrics: { passAtK: 0.5, meanTokens: 321, toolCalls: 7, toolErrorRate: 0.25, truncatedShare: 0.1, failed: 1 },
  }
  const text = reportOf(benchmarks.get('aime24')!, result)
  expect(text).toContain('12.5 ± 5.0 %')
  expect(text).toMatch(/\| this model +\| 12\.5 +\| 321/)
  expect(text).toMatch(/\| rStar2-Agent-14B +\| 80\.6 +\| 9340/)
  expect(besideThePaper(benchmarks.get('gsm8k')!, result)).toBe('')
  expect(text).toMatch(/\| failed tool calls +\| 25\.0 % +\|/)
  const scored = { ...result, metrics: { ...result.metrics, passAt8: 0.4, passAt2: 0.2 } }
  expect(
    reportOf(benchmarks.get('aime24')!, scored)
      .match(/pass@\d+ +\| [\d.]+/g)
      ?.map(row => row.replace(/ +/g, ' ')),
  ).toEqual(expect.arrayContaining(['pass@2 | 20.0', 'pass@8 | 40.0', 'pass@16 | 50.0']))
  const uncalled = { ...result, metrics: { ...result.metrics, toolCalls: 0, toolErrorRate: 0 } }
  expect(reportOf(benchmarks.get('aime24')!, uncalled)).toMatch(/\| failed tool calls +\| – +\|/)
})
