import { PassThrough, Writable } from 'node:stream'
import type { AnswerGrader } from '../../actors/verification/answerGrader'
import { gradeLines } from '../../cli/grade'
import { parseGradeLine } from '../../cli/grade/line'
import { checkByArithmetic, numericValue } from '../../kernels'
import { troupe } from '../support/cli'

jest.setTimeout(120_000)

async function grade(input: string, args: readonly string[] = [], env: NodeJS.ProcessEnv = {}) {
  const { code, stdout, stderr } = await troupe(['grade', '--jsonl', ...args], env, undefined, input).done
  const lines: unknown[] = stdout
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line))
  return { code, lines, stderr }
}

const jsonl = (rows: readonly unknown[]) =>
  rows.map(row => `${typeof row === 'string' ? row : JSON.stringify(row)}\n`).join('')

test('every line is answered in its place, broken ones as well, with the reason', async () => {
  const rows = [
    { id: 'a', answer: '\\frac{2}{4}', truth: '0.5' },
    { id: 2, answer: 'so it is <answer>\\boxed{x=5}</answer>', truth: '\\boxed{5}', level: 3 },
    { answer: '7', truth: 8 },
    'not JSON',
    '[1]',
    { id: 'b', anwser: '1', truth: '1' },
    { id: 'c', answer: null, truth: '1' },
    { id: 'd', answer: '1', truth: ' ' },
    { id: { no: 1 }, answer: '1', truth: '1' },
    { id: 'e', answer: '', truth: '1' },
  ]
  const { code, lines, stderr } = await grade(jsonl(rows), ['--timeout-ms', '20000'])
  expect(lines).toEqual([
    { id: 'a', correct: true, how: 'math-verify', why: 'math-verify finds them equal' },
    { id: 2, correct: true, how: 'math-verify', why: 'math-verify finds them equal' },
    { correct: false, how: 'integer', why: 'two different integers' },
    { correct: null, how: 'rejected', why: expect.stringContaining('not JSON') },
    { correct: null, how: 'rejected', why: expect.stringContaining('JSON object') },
    { id: 'b', correct: null, how: 'rejected', why: "answer is missing; did you mean 'anwser'?" },
    { id: 'c', correct: null, how: 'rejected', why: 'answer must be a string or a number, not null' },
    { id: 'd', correct: null, how: 'rejected', why: 'truth is empty' },
    { correct: null, how: 'rejected', why: 'id must be a string or a number' },
    { id: 'e', correct: false, how: 'no-answer', why: 'the answer is empty' },
  ])
  expect(code).toBe(0)
  expect(stderr).toContain('graded 4: 2 right, 2 wrong; 6 lines were not graded')
})

test('10,000 integers are graded in the order of their lines, in seconds, and without any Python', async () => {
  const rows = Array.from({ length: 10_000 }, (_, id) => ({ id, answer: `\\boxed{${id}}`, truth: String(id) }))
  const started = performance.now()
  const { lines } = await grade(jsonl(rows), [], { TROUPE_VENV: '/nonexistent' })
  const tookMs = performance.now() - started
  expect(lines.map(line => (line as { id: number }).id)).toEqual(rows.map(row => row.id))
  // With the start of a process, on a machine that has other things to do.
  expect(tookMs).toBeLessThan(10_000)
})

test("the place of the answer is the recipe's: only inside the last answer tag, or anywhere", async () => {
  const rows = [
    { answer: '\\boxed{1} <answer>\\boxed{2}</answer> \\boxed{3}', truth: '2' },
    { answer: '2', truth: '2' },
  ]
  const of = async (place: string) =>
    (await grade(jsonl(rows), ['--place', place])).lines.map(l => (l as { correct: boolean }).correct)
  expect(await of('answer-tag')).toEqual([true, false])
  expect(await of('anywhere')).toEqual([false, false])
  expect(await of('as-given')).toEqual([true, true])
})

test('--literal refuses a restated problem where the truth is an integer, and nothing else', async () => {
  const rows = [
    { answer: '2^{10} - 1', truth: '1023' },
    { answer: '6=5', truth: '5' },
    { answer: 'x = 5', truth: '5' },
    { answer: '0.5', truth: '\\frac{1}{2}' },
  ]
  const correct = async (...args: string[]) =>
    (await grade(jsonl(rows), ['--timeout-ms', '20000', ...args])).lines.map(
      line => (line as { correct: boolean }).correct,
    )
  expect(await correct()).toEqual([true, true, true, true])
  expect(await correct('--literal')).toEqual([false, false, true, true])
})

test('a wrong option is a wrong usage', async () => {
  expect(await grade('', ['--place', 'nowhere'])).toMatchObject({ code: 2, lines: [] })
  expect((await grade('', ['--timeout-ms', '0'])).code).toBe(2)
})

test('no more lines are read than may be open, and each is written as soon as those before it are', async () => {
  let release: () => void = () => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  let asked = 0
  const grader: AnswerGrader = async ({ answer }) => {
    asked++
    if (answer === 'slow') await held
    return { correct: true, how: 'text', why: '' }
  }
  const input = new PassThrough()
  const written: string[] = []
  const output = new Writable({
    write(chunk, _encoding, done) {
      written.push(String(chunk))
      done()
    },
  })
  const line = (id: number, answer: string) => `${JSON.stringify({ id, answer, truth: 't' })}\n`
  const grading = gradeLines(grader, input, output, 'as-given')
  input.write(line(0, 'quick') + line(1, 'slow'))
  for (let id = 2; id < 3000; id++) input.write(line(id, 'quick'))
  input.end()
  await new Promise(resolve => setTimeout(resolve, 300))
  expect(written).toHaveLength(1) // the first, while the input is still open
  expect(asked).toBeLessThanOrEqual(1025)
  release()
  expect(await grading).toMatchObject({ right: 3000, wrong: 0, ungraded: 0 })
  expect(written.map(text => JSON.parse(text).id)).toEqual(Array.from({ length: 3000 }, (_, id) => id))
})

test('an answer is what stands in the last tag and box, and a number is its text', () => {
  const answerOf = (answer: unknown) => parseGradeLine(JSON.stringify({ answer, truth: '1' }), 'as-given')
  expect(answerOf('<answer>7</answer>')).toMatchObject({ answer: '7' })
  expect(answerOf('<answer>\\boxed{7}</answer> \\boxed{8}')).toMatchObject({ answer: '7' })
  expect(answerOf('\\boxed{7} and \\boxed{\\frac{8}{9}}')).toMatchObject({ answer: '\\frac{8}{9}' })
  expect(answerOf(0.5)).toMatchObject({ answer: '0.5' })
  // No digit is lost on the way: these differ in their last.
  const line =
    '{"id": 12345678901234567, "answer":12345678901234567890 , "truth": -0.1234567890123456789, "note": "\\"[1e999, \\\\"}'
  expect(parseGradeLine(line, 'as-given')).toEqual({
    id: '12345678901234567',
    answer: '12345678901234567890',
    truth: '-0.1234567890123456789',
  })
  expect(parseGradeLine('{"id":7,"answer":1e400,"truth":1.50}', 'as-given')).toEqual({
    id: 7,
    answer: '1e400',
    truth: '1.5',
  })
  expect(answerOf(true)).toMatchObject({ reason: 'answer must be a string or a number, not a boolean' })
})

test('arithmetic never says the same of what a double cannot tell apart, and reads degrees in trigonometry', () => {
  const apart = [
    ...[
      ['12345678901234567890', '12345678901234567891'],
      ['1{,}000', '1001'],
      ['\\sin 30', '\\frac12'],
      ['2/3.', '2'],
    ],
    ...[
      ['\\sin 60^\\circ', '\\frac12'],
      ['\\frac13', '0.3333'],
    ],
  ]
  for (const [a, b] of apart) expect([a, b, checkByArithmetic(a!, b!)]).toEqual([a, b, false])
  const untold = [
    ...[
      ['10^{20}+1', '10^{20}'],
      ['2^{1000}', '2^{1000}+1'],
      ['0', '10^{-20}'],
      ['1', '1 + 10^{-12}'],
    ],
    ...[
      ['0.12345678901234567', '0.12345678901234568'],
      ['1', '0.999999999999'],
    ],
  ]
  for (const [a, b] of untold) expect([a, b, checkByArithmetic(a!, b!) ?? 'untold']).toEqual([a, b, 'untold'])
  const same = [
    ['12,345', '12345.0'],
    ['90^\\circ', '90'],
    ['\\frac{2}{6}', '\\frac13'],
    ['\\cos 0^\\circ', '1'],
    ['0.\\overline{3}', '\\frac13'],
  ]
  for (const [a, b] of same) expect([a, b, checkByArithmetic(a!, b!)]).toEqual([a, b, true])
  for (const sine of ['\\sin 30^\\circ', '\\sin(30^{\\circ})', '\\sin{30°}'])
    expect(numericValue(sine)).toBeCloseTo(0.5, 12)
})

test('with --second a line says what arithmetic alone finds, and whether the two differ', async () => {
  const rows = [
    { answer: '0.5', truth: '\\frac{1}{2}' },
    { answer: '\\sqrt{12}', truth: '2\\sqrt{2}' },
    { answer: 'x+1', truth: '1+x' },
    { answer: '\\$18', truth: '18 + 0' },
  ]
  const { lines, stderr } = await grade(jsonl(rows), ['--second', '--timeout-ms', '20000'])
  expect(lines).toMatchObject([
    { correct: true, second: true, differ: false },
    { correct: false, second: false, differ: false },
    { correct: true, second: null, differ: false },
    { correct: true },
  ])
  expect(stderr).toContain('arithmetic decided')
})
