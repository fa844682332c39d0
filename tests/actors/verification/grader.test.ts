/** The grader with the real math-verify, in a sandbox: verdicts, and answers that were made to hang it. */
import { readdirSync, readFileSync } from 'node:fs'
import { answerGrader } from '../../../actors/verification/answerGrader'
import { type GraderSandbox, graderSandbox } from '../../../actors/verification/graderSandbox'
import { mathGrader } from '../../../actors/verification/mathGrader'
import { pythonPath } from '../../../runtime/python'
import { openSandbox, type RunRequest, type RunResult } from '../../../sandbox'
import { descendantsOf } from '../../support/descendants'
import { until } from '../../support/until'

jest.setTimeout(180_000)

let sandbox: GraderSandbox
const results: RunResult[] = []
beforeAll(() => {
  sandbox = graderSandbox(4)
})
afterAll(() => sandbox.close())
beforeEach(() => {
  results.length = 0
})

/** The sandbox, with a note of what ran. */
const noted = {
  lanes: 4,
  async run(request: RunRequest, signal?: AbortSignal) {
    const result = await sandbox.run(request, signal)
    results.push(result)
    return result
  },
}

test('a literal grader takes no expression for an integer, and decides that without math-verify', async () => {
  const lenient = answerGrader(noted, { timeoutMs: 20_000 })
  const literal = answerGrader(noted, { timeoutMs: 20_000, literal: true })
  const restated = [
    ['5050', '\\sum_{k=1}^{100} k'],
    ['2', '2^{100} \\mod 7'],
    ['5', '\\gcd(10,15)'],
    ['5', '6=5'],
    ['5', '\\frac{10}{2}'],
  ] as const
  for (const [truth, answer] of restated) {
    expect(await literal({ truth, answer })).toMatchObject({ correct: false, how: 'literal' })
  }
  expect(results).toEqual([]) // nothing was run
  expect(await lenient({ truth: '5', answer: '\\frac{10}{2}' })).toMatchObject({ correct: true })
  const written = ['5', '5.0', '5 \\text{ cm}', 'five', 'x = 5', '\\text{5}', '$5$', '5 \\text{ apples}']
  for (const answer of written)
    expect([answer, (await literal({ truth: '5', answer })).correct]).toEqual([answer, true])
  expect(await literal({ truth: '5', answer: '4.5' })).toMatchObject({ correct: false })
  // A truth that is no integer is compared by value, as before.
  expect(await literal({ truth: '\\frac{1}{2}', answer: '\\frac{2}{4}' })).toMatchObject({ correct: true })
})

test('answers in other words are taken for the truth, and different ones are not', async () => {
  const grade = answerGrader(noted, { timeoutMs: 20_000 })
  const right = [
    ['\\frac{1}{2}', '0.5'],
    ['\\frac{1}{2}', '\\frac{1}\n  {2}'],
    ['11\\sqrt{2}', '\\sqrt{242}'],
    ['2(k+1)', '2k+2'],
    ['50\\%', '\\frac12'],
    ['10', '10\\text{ cm}'],
    ['\\text{east}', '\\text{East}'],
    ['$\\pi/2$', '\\frac{\\pi}{2}'],
    ['\\begin{pmatrix}1\\\\2\\end{pmatrix}', '\\begin{bmatrix}\n1\\\\\n2\n\\end{bmatrix}'],
    ['\\$32,000', '32000'],
    ['(6,31,-1)', '{{(6,31,-1)}}'],
    ['\\{1,2\\}', '{ \\{2,1\\} }'],
  ] as const
  const wrong = [
    ['\\frac{1}{2}', '0.4'],
    ['(1,2)', '(2,1)'],
    ['5', '5$ or $6'],
    ['\\text{east}', '\\text{seat}'],
    ['x+1', 'y+1'],
    ['\\frac{12}{5}', '{1}{2}'],
    ['\\frac{1}{2}', '{2{1}'],
  ] as const
  const verdicts = (pairs: readonly (readonly [string, string])[]) =>
    Promise.all(pairs.map(async ([truth, answer]) => [truth, answer, (await grade({ truth, answer })).correct]))
  expect(await verdicts(right)).toEqual(right.map(pair => [...pair, true]))
  expect(await verdicts(wrong)).toEqual(wrong.map(pair => [...pair, false]))
})

test('answers that were made to hang or to eat memory cost their own deadline, and count as wrong', async () => {
  const timeoutMs = 1500
  const memoryMb = 1024
  const grade = answerGrader(noted, { timeoutMs, memoryMb })
  const nested = (open: string, close: string, times: number) => `${open.repeat(times)}2${close.repeat(times)}`
  const hostile = [
    '9^{9^{9^{9}}}',
    '2^{2^{2^{2^{2^{2}}}}}',
    '(10^9)!',
    '9!!!!!!',
    '\\binom{10^9}{5\\cdot 10^8}',
    '7^{7^{7^{7}}} \\mod 10',
    '\\prod_{i=1}^{10^{9}} i',
    '\\sum_{i=1}^{10^{12}} i^i',
    '\\int_0^1 e^{e^{e^{x^{x}}}} \\sin(x^x) dx',
    '(x+y+z+w+1)^{300}',
    nested('{', '}', 4000),
    nested('(', ')', 4000),
    nested('\\sqrt{', '}', 1500),
    nested('\\frac{1}{', '}', 900),
    `\\{${Array.from({ length: 1900 }, (_, i) => i).join(',')}\\}`,
    'x+'.repeat(4999),
  ]
  const started = performance.now()
  const verdicts = await Promise.all(hostile.map(answer => grade({ truth: '\\frac{3}{4}', answer })))
  expect(verdicts.filter(({ correct }) => correct)).toEqual([])
  expect(verdicts.filter(({ how }) => how === 'math-verify-timeout').length).toBeGreaterThan(5)
  expect(Math.max(...results.map(({ cpuMs }) => cpuMs))).toBeGreaterThan(100)
  // CPU time, which other work on the host does not lengthen; the time of all of them is bounded below.
  for (const { cpuMs, maxRssBytes } of results) {
    expect(cpuMs).toBeLessThan(timeoutMs + 1000)
    expect(maxRssBytes).toBeLessThan(memoryMb * 2 ** 20)
  }
  // Lanes beside the one that is stuck go on: all of them together take a quarter of their deadlines.
  expect(performance.now() - started).toBeLessThan((hostile.length / 4) * (timeoutMs + 3000))
  const patient = answerGrader(noted, { timeoutMs: 20_000 })
  expect(await patient({ truth: '\\frac{3}{4}', answer: '0.75' })).toMatchObject({ correct: true })
  await until(() => descendantsOf(process.pid).every(pid => !isPython(pid)), 10_000)
})

const isPython = (pid: number) => {
  try {
    return (
      readdirSync(`/proc/${pid}/task`).length > 0 && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('launcher')
    )
  } catch {
    return false
  }
}

test('one that hangs among many that wait costs those beside it nothing but a moment, and itself its deadline', async () => {
  const grade = answerGrader(noted, { timeoutMs: 6000 })
  const good = Array.from({ length: 160 }, (_, i) => ({
    truth: `\\frac{${i + 1}}{7}`,
    answer: `\\frac{${3 * i + 3}}{21}`,
  }))
  const began = performance.now()
  const ended: number[] = []
  const judge = async (ask: { truth: string; answer: string }) => {
    const verdict = await grade(ask)
    ended.push(performance.now() - began)
    return verdict
  }
  const open = good.slice(0, 80).map(judge)
  const hangs = judge({ truth: '\\frac{3}{4}', answer: '9^{9^{9^{9}}}' })
  const verdicts = await Promise.all([...open, ...good.slice(80).map(judge)])
  expect(verdicts.every(({ correct }) => correct)).toBe(true)
  expect(await hangs).toMatchObject({ correct: false, how: 'math-verify-timeout' })
  // It was the last to end: nobody waited for its deadline. And most were put together.
  expect(ended.at(-1)).toBeGreaterThan(6000)
  expect(results.length).toBeLessThan(60)
})

test('an answer of a megabyte is settled without math-verify, and one that is the truth is right', async () => {
  const grade = answerGrader(noted, { timeoutMs: 1000 })
  const large = 'x+'.repeat(500_000)
  expect(await grade({ truth: '3', answer: large })).toMatchObject({ correct: false, how: 'too-long' })
  expect(await grade({ truth: large, answer: large })).toMatchObject({ correct: true, how: 'text' })
  expect(await grade({ truth: `${large}x`, answer: '3' })).toMatchObject({ correct: false, how: 'too-long' })
  expect(results).toEqual([])
})

test('integers and empty answers never reach math-verify; an empty box is no answer, even to an empty truth', async () => {
  const grade = mathGrader(noted, { place: 'answer-tag', timeoutMs: 1000 })
  const response = (text: string) => ({ response: `<answer>\\boxed{${text}}</answer>`, truth: '42' })
  expect(await grade(response('42.0'), new AbortController().signal)).toEqual({
    reward: 1,
    answer: '42.0',
    how: 'integer',
    why: 'the same integer',
  })
  expect(await grade(response('41'), new AbortController().signal)).toMatchObject({ reward: 0, how: 'integer' })
  expect(await grade({ ...response(' '), truth: '' }, new AbortController().signal)).toMatchObject({
    reward: 0,
    how: 'no-answer',
  })
  expect(await grade({ response: '42', truth: '42' }, new AbortController().signal)).toMatchObject({ how: 'no-answer' })
  expect(results).toEqual([])
})

test('one question that is asked many times is put to math-verify once', async () => {
  const grade = answerGrader(noted, { timeoutMs: 20_000 })
  const ask = { truth: '\\frac{1}{3}', answer: '\\frac{2}{6}' }
  const verdicts = await Promise.all(Array.from({ length: 32 }, () => grade(ask)))
  verdicts.push(await grade({ ...ask, answer: ` ${ask.answer} ` }))
  expect(verdicts.every(({ correct }) => correct)).toBe(true)
  expect(results).toHaveLength(1)
})

test('more answers than the sandbox would queue are all judged, and a queue over its bound refuses with a code', async () => {
  const small = await openSandbox({ lanes: 2, queueLimit: 3, python: pythonPath() })
  try {
    const grade = answerGrader(small, { timeoutMs: 20_000, maxWaiting: 6 })
    const asks = Array.from({ length: 14 }, (_, i) => ({ truth: `\\frac{${i}}{7}`, answer: `\\frac{${3 * i}}{21}` }))
    const settled = await Promise.allSettled(asks.map(ask => grade(ask)))
    const refused = settled.filter(s => s.status === 'rejected').map(s => s.reason.code)
    expect(refused).toEqual(Array(4).fill('verifier.overloaded'))
    expect(settled.filter(s => s.status === 'fulfilled' && s.value.correct)).toHaveLength(10)
  } finally {
    await small.close()
  }
})

test('a Python without math-verify is a broken grader, not a wrong answer', async () => {
  const bare = await openSandbox({ lanes: 1 })
  try {
    const grade = answerGrader(bare, { timeoutMs: 20_000 })
    await expect(grade({ truth: 'x', answer: 'y' })).rejects.toMatchObject({ code: 'verifier.failed', retriable: true })
  } finally {
    await bare.close()
  }
})

test('a call that is aborted takes no verdict from a concurrent call with the same pair', async () => {
  const grade = answerGrader(noted, { timeoutMs: 20_000 })
  const pair = { truth: '\\frac{7}{11}', answer: '\\frac{14}{22}' }
  const aborter = new AbortController()
  const first = grade(pair, aborter.signal)
  const second = grade(pair)
  const third = grade(pair, new AbortController().signal)
  aborter.abort()
  await expect(first).rejects.toThrow()
  expect(await Promise.all([second, third])).toMatchObject([{ correct: true }, { correct: true }])
})

test('an abort ends a call that waits for the verdict of a concurrent one', async () => {
  const grade = answerGrader(noted, { timeoutMs: 20_000 })
  const pair = { truth: '\\frac{7}{13}', answer: '\\frac{14}{26}' }
  const first = grade(pair)
  const aborter = new AbortController()
  const second = grade(pair, aborter.signal)
  aborter.abort(new Error('no longer wanted'))
  await expect(second).rejects.toThrow('no longer wanted')
  expect(await first).toMatchObject({ correct: true })
})
