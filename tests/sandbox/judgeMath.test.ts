/** A judge that answers type `math` with what math-verify says. */
import { execFileSync } from 'node:child_process'
import { pythonPath } from '../../runtime/python'
import { type Judge, openJudge, openSandbox, type Sandbox } from '../../sandbox'

let sandbox: Sandbox
let judge: Judge
beforeAll(async () => {
  sandbox = await openSandbox({ python: pythonPath(), zygotes: 1, preload: ['math_verify'], lazyPreload: true })
  judge = await openJudge(sandbox, { port: 0, math: true })
}, 120_000)
afterAll(async () => {
  await judge.close()
  await sandbox.close()
})

async function post(path: string, body: object) {
  const response = await fetch(`${judge.url}${path}`, { method: 'POST', body: JSON.stringify(body) })
  return (await response.json()) as {
    success: boolean
    run_success: boolean
    stderr: string
    reason: string
    results: never[]
  }
}

const pairs = [
  ['0.5', '\\frac{1}{2}'],
  ['Thus the answer is \\boxed{\\frac{2}{4}}.', '$\\frac12$'],
  ['$(1,2)$', '$(1, 2)$'],
  ['0.51', '\\frac{1}{2}'],
  ['7', '8'],
  ['x+1', '1+x'],
] as const

test('every verdict is that of math-verify itself', async () => {
  const submissions = pairs.map(([solution, expected_output]) => ({ type: 'math', solution, expected_output }))
  const { results } = await post('/run/long-batch', { type: 'batch', submissions })
  const program = `
import json, sys
from math_verify import parse, verify
read = lambda text: parse(text) or parse('$' + text + '$')
print(json.dumps([bool(verify(read(truth), read(answer))) for answer, truth in json.loads(sys.argv[1])]))
`
  const said = JSON.parse(execFileSync(pythonPath(), ['-c', program, JSON.stringify(pairs)], { encoding: 'utf8' }))
  expect(results.map(({ success }) => success)).toEqual(said)
  expect(said.slice(0, 5)).toEqual([true, true, true, false, false])
  expect(results.map(({ run_success }) => run_success)).toEqual(pairs.map(() => true))
}, 120_000)

test('an answer without a value is wrong and stderr says so; a truth must be given; programs run as ever', async () => {
  const empty = await post('/run', { type: 'math', solution: '', expected_output: '3' })
  expect(empty).toMatchObject({ success: false, reason: '', stderr: 'math-verify finds no value in solution\n' })
  const open = await post('/run', { type: 'math', solution: '3' })
  expect(open).toMatchObject({
    success: false,
    reason: 'invalid_input',
    stderr: expect.stringContaining('expected_output'),
  })
  expect(await post('/judge', { type: 'python', solution: 'print(1)', expected_output: '1' })).toMatchObject({
    success: true,
  })
}, 120_000)

test('without math-verify the judge does not open with --math, and says why', async () => {
  const plain = await openSandbox({ python: 'python3', zygotes: 1 })
  await expect(openJudge(plain, { port: 0, math: true })).rejects.toMatchObject({
    code: 'judge.no_math',
    message: expect.stringContaining("No module named 'math_verify'"),
  })
  await plain.close()
}, 120_000)
