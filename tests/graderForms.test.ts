/**
 * The grader on MATH-500's answers in other words: each is reworded by rules that keep its value, and by rules that do not.
 * The file is the benchmark's own and no part of the project; without it the test says so.
 */
import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { answerGrader } from '../actors/ports/answerGrader'
import { type GraderSandbox, graderSandbox } from '../actors/ports/graderSandbox'
import { numericValue, sameNumber } from '../kernels'
import { pythonPath } from '../runtime/python'

jest.setTimeout(600_000)

const file = resolve(__dirname, '../../shared/data/math/math500.jsonl')
const isThere = existsSync(file)
if (!isThere) process.stderr.write(`MATH-500 is not read: ${file} is not there\n`)
const withFile = isThere ? test : test.skip

let sandbox: GraderSandbox
beforeAll(() => {
  sandbox = graderSandbox(4)
})
afterAll(() => sandbox.close())

const answers = (): readonly string[] => {
  const rows = readFileSync(file, 'utf8').trim().split('\n')
  return [...new Set(rows.map(row => (JSON.parse(row) as { answer: string }).answer))]
}

/** Same value, other words. */
function reworded(answer: string): string[] {
  const forms: string[] = []
  const value = numericValue(answer)
  const fraction = /^(-?)\\d?frac\{(\d+)\}\{(\d+)\}$/.exec(answer)
  if (fraction) {
    const [, sign, over, under] = fraction as unknown as [string, string, string, string]
    forms.push(`${sign}\\dfrac{${over}}{${under}}`, `${sign}${over}/${under}`)
    forms.push(`${sign}\\frac{${3 * Number(over)}}{${3 * Number(under)}}`)
    const decimal = Number(over) / Number(under)
    if (Number.isInteger(decimal * 10_000)) forms.push(`${sign}${decimal}`)
  }
  if (/^-?\d{1,15}$/.test(answer)) {
    forms.push(`${answer}.0`, `+${answer}`.replace('+-', '-'), `\\frac{${BigInt(answer) * 2n}}{2}`, `$${answer}$`)
    forms.push(`${Number(answer).toLocaleString('en-US')}`, `\\left(${answer}\\right)`, `x = ${answer}`, `{${answer}}`)
  }
  if (value !== undefined && !/[%$°a-zA-Z]/.test(answer.replace(/\\[a-z]+/g, '')) && !/circ|\d,\d/.test(answer)) {
    forms.push(
      `${answer} + 0`,
      `1 \\cdot (${answer})`,
      `(${answer})\\cdot 1`,
      `${answer}\\text{ cm}`,
      `${answer}\\,\\mathrm{units}`,
    )
  }
  const root = /^(\d+)\\sqrt\{?(\d+)\}?$/.exec(answer)
  if (root) {
    forms.push(`\\sqrt{${Number(root[1]) ** 2 * Number(root[2])}}`, `\\sqrt{${root[2]}} \\cdot ${root[1]}`)
  }
  const factors = /^(\([^()]+\))(\([^()]+\))$/.exec(answer)
  if (factors) forms.push(`${factors[2]}${factors[1]}`)
  const terms = /^(\d*[a-z](?:\^\{?\d+\}?)?) ?\+ ?(\d+)$/.exec(answer)
  if (terms) forms.push(`${terms[2]} + ${terms[1]}`)
  const words = /^\\text\{([A-Za-z ]+)\}$/.exec(answer)
  if (words) forms.push(words[1]!, words[1]!.toUpperCase(), ` ${answer} `, `${words[1]}.`)
  if (/^\(.*,.*\)$/.test(answer)) forms.push(`\\left${answer.slice(0, -1)}\\right)`, answer.replaceAll(',', ' , '))
  return forms
}

/** Other values. */
function wrong(answer: string): string[] {
  const forms: string[] = []
  const value = numericValue(answer)
  if (value !== undefined && !/[%$]/.test(answer)) {
    forms.push(`${answer} + 1`, `${value + 2}`)
    if (value !== 0) forms.push(`-(${answer})`)
  }
  const pair = /^\\left\( ?([^,]+), ([^,]+) ?\\right\)$|^\(([^,()]+),([^,()]+)\)$/.exec(answer)
  if (pair) {
    const [a, b] = pair.slice(1).filter(part => part !== undefined) as [string, string]
    if (sameNumber(a, b) === false) forms.push(`(${b},${a})`)
  }
  if (/^\\text\{[A-Za-z ]+\}$/.test(answer)) forms.push('\\text{another}', 'another', '7')
  if (/[a-z]/.test(answer.replace(/\\[a-z]+/g, '')) && value === undefined && !/text|_|,/.test(answer)) forms.push('17')
  return forms
}

/** math-verify as its own documentation uses it. */
async function byMathVerify(pairs: readonly (readonly [string, string])[]): Promise<boolean[]> {
  const program = `
import json, sys
from math_verify import parse, verify
for line in sys.stdin:
    truth, answer = json.loads(line)
    print(json.dumps(bool(verify(parse('$' + truth + '$'), parse('$' + answer + '$')))))
`
  const running = promisify(execFile)(pythonPath(), ['-c', program], { maxBuffer: 2 ** 26 })
  running.child.stdin!.end(pairs.map(pair => `${JSON.stringify(pair)}\n`).join(''))
  return (await running).stdout
    .trim()
    .split('\n')
    .map(line => line === 'true')
}

withFile('reworded answers are right, wherever math-verify finds them so as well, and others are wrong', async () => {
  const grade = answerGrader(sandbox, { timeoutMs: 20_000 })
  const right = answers().flatMap(answer => reworded(answer).map(form => [answer, form] as const))
  const others = answers().flatMap(answer => wrong(answer).map(form => [answer, form] as const))
  expect(right.length).toBeGreaterThan(1500)
  expect(others.length).toBeGreaterThan(700)
  const judge = (pairs: typeof right) => Promise.all(pairs.map(([truth, answer]) => grade({ truth, answer })))
  const [ofRight, ofOthers] = await Promise.all([judge(right), judge(others)])
  const theirs = await byMathVerify(right)
  const refused = right.filter((_, at) => !ofRight[at]!.correct)
  expect(refused.filter(pair => theirs[right.indexOf(pair)])).toEqual([])
  process.stderr.write(
    `${right.length} reworded: ${refused.length} refused here, ${theirs.filter(t => !t).length} by math-verify alone\n`,
  )
  expect(refused).toEqual([])
  expect(others.filter((_, at) => ofOthers[at]!.correct)).toEqual([])
})

withFile('the second grader, which only computes, never contradicts the first on them', async () => {
  const grade = answerGrader(sandbox, { timeoutMs: 20_000 })
  const pairs = answers().flatMap(truth => [...reworded(truth), ...wrong(truth)].map(answer => ({ truth, answer })))
  const told = pairs.flatMap(pair => {
    const same = sameNumber(pair.truth, pair.answer)
    return same === undefined ? [] : [{ pair, same }]
  })
  expect(told.length).toBeGreaterThan(1000)
  const differ = await Promise.all(
    told.map(async ({ pair, same }) => ((await grade(pair)).correct === same ? [] : [pair])),
  )
  expect(differ.flat()).toEqual([])
})
