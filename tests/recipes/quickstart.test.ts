/** The quickstart's problems and demonstrations: pure, apart, right, and as bad as they are declared to be. */
import { execFileSync } from 'node:child_process'
import { parseToolCalls, resolveCalls, toolResultText } from '../../kernels'
import {
  breakages,
  brokenCall,
  type DemonstrationKind,
  demonstration,
  demonstrationShares,
} from '../../recipes/quickstart/demonstrations'
import { quickstartTask, splitOf } from '../../recipes/quickstart/tasks'
import { openSandbox, pythonTool, runPythonTool } from '../../sandbox'

const indices = (n: number) => Array.from({ length: n }, (_, index) => index)
const operands = (text: string) => text.match(/\d+/g)!.map(BigInt)

test('no operands of an evaluation problem occur in training, under any seed', () => {
  for (const seed of [0, 1, 2 ** 31 - 1]) {
    for (const split of ['train', 'eval'] as const) {
      for (const index of indices(400)) {
        expect(splitOf(operands(quickstartTask(index, seed, split).question))).toBe(split)
      }
    }
  }
})

test('a problem depends on its index, seed and split alone, and evaluation problems hardly repeat', () => {
  expect(quickstartTask(7, 1, 'train')).toEqual(quickstartTask(7, 1, 'train'))
  expect(quickstartTask(7, 2, 'train')).not.toEqual(quickstartTask(7, 1, 'train'))
  const questions = indices(512).map(index => quickstartTask(index, 1, 'eval').question)
  expect(new Set(questions).size).toBeGreaterThan(505)
})

test('the expression has the operands in the order of the question, and its value by Python is the answer', () => {
  const tasks = indices(600).map(index => quickstartTask(index, 3, index % 2 === 0 ? 'train' : 'eval'))
  for (const task of tasks) expect(operands(task.expression)).toEqual(operands(task.question))
  const code = tasks.map(task => `print(${task.expression})`).join('\n')
  const printed = execFileSync('python3', ['-I', '-c', code], { timeout: 10_000 }).toString().trim().split('\n')
  expect(printed).toEqual(tasks.map(task => task.answer))
})

const sample = indices(4000).map(index => demonstration(index, 1))

test('kinds of demonstrations come in the declared shares', () => {
  const total = Object.values(demonstrationShares).reduce((sum, share) => sum + share, 0)
  expect(total).toBeCloseTo(1)
  for (const [kind, share] of Object.entries(demonstrationShares)) {
    const seen = sample.filter(demo => demo.kind === kind).length / sample.length
    expect(Math.abs(seen - share)).toBeLessThan(5 * Math.sqrt((share * (1 - share)) / sample.length))
  }
})

test('a demonstration ends right exactly if its kind says so, and fails exactly its broken calls', () => {
  const right: readonly DemonstrationKind[] = ['solves', 'recovers', 'stumbles']
  for (const { kind, task, broken, messages } of sample) {
    const truth = `<answer>\\boxed{${task.answer}}</answer>`
    expect(messages[messages.length - 1]!.content === truth).toBe(right.includes(kind))
    const failed = messages.filter(m => m.role === 'tool' && !m.content.startsWith('Tool call success'))
    expect(failed).toHaveLength(broken.length)
    expect(messages.map(m => m.role)).toEqual(
      messages.map((_, at) => (at === 0 ? 'user' : at % 2 === 1 ? 'assistant' : 'tool')),
    )
  }
})

test('a good share of the rewarded calls is broken, and more demonstrations than not are to be unlearned', () => {
  const rewarded = sample.filter(demo => ['solves', 'recovers', 'stumbles'].includes(demo.kind))
  const calls = rewarded.reduce((sum, demo) => sum + demo.broken.length + 1, 0)
  const failed = rewarded.reduce((sum, demo) => sum + demo.broken.length, 0)
  expect(failed / calls).toBeGreaterThan(0.25)
  expect(sample.filter(demo => demo.kind === 'solves').length / sample.length).toBeLessThan(0.5)
})

test('every response in a demonstration is what the real tool answers to that call', async () => {
  const sandbox = await openSandbox()
  const breaking = breakages.map(breakage => brokenCall(breakage, '(12+34)*5'))
  const kinds = Object.keys(demonstrationShares) as DemonstrationKind[]
  const demos = kinds.map(kind => sample.find(demo => demo.kind === kind)!.messages.slice(1, -1))
  try {
    for (const messages of [...breaking, ...demos]) {
      for (let at = 0; at + 1 < messages.length; at += 2) {
        expect(messages[at + 1]!.content).toBe(await respond(sandbox, messages[at]!.content))
      }
    }
  } finally {
    await sandbox.close()
  }
}, 60_000)

/** What a coordinator and a tool executor would answer, over the real sandbox. */
async function respond(sandbox: Awaited<ReturnType<typeof openSandbox>>, turn: string): Promise<string> {
  const [call] = resolveCalls(parseToolCalls(turn).calls, [pythonTool.name]).resolved
  if (call === undefined) throw new Error(`no call: ${turn}`)
  if (call.kind === 'refused') return call.text
  const { code, input } = call.arguments
  if (typeof code !== 'string' || typeof input !== 'string') {
    const reason = 'code must be a string'
    return toolResultText({ status: 'rejected', reason, exitCode: null, signal: null, stdout: '', stderr: '' })
  }
  const result = await runPythonTool(sandbox, { code, input }, { timeoutMs: 10_000 })
  return toolResultText({ ...result, signal: null })
}
