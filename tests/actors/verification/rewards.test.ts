/** Rewards by name: the built-in ones, functions of a recipe, functions in Python; and what becomes of those that fail. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { graderSandbox } from '../../../actors/verification/graderSandbox'
import { openGraders } from '../../../actors/verification/graders'
import { type Grader, verifierPort } from '../../../actors/verification/verifierPort'
import { type RewardProcesses, startRewardProcesses } from '../../../backends/reward/rewardProcess'
import { type Recipe, type RecipeConfig, recipeSchema } from '../../../config'
import { groupId, taskId, trajectoryId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import { parseConfig } from '../../../runtime/settings/resolveConfig'
import { isAlive } from '../../support/cli'
import { until } from '../../support/until'

jest.setTimeout(120_000)

let directory: string
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'troupe-rewards-'))
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

function file(name: string, text: string): string {
  const path = join(directory, name)
  writeFileSync(path, text)
  return path
}

const config = (reward: object): RecipeConfig =>
  parseConfig(recipeSchema, { name: 't', model: { from: 'directory', path: 'm' }, reward }, 'recipe t')

async function gradersOf(reward: object, rewards?: Recipe['rewards']): Promise<ReadonlyMap<string, Grader>> {
  const sandbox = graderSandbox(1)
  const { byName, close } = await openGraders({ config: config(reward), sandbox, ...(rewards ? { rewards } : {}) })
  closers.push(close, () => sandbox.close())
  return byName
}

const task = (truth: string, metadata?: Readonly<Record<string, unknown>>) => ({
  ...{ id: taskId('t1'), messages: [{ role: 'user' as const, content: 'q' }], truth, reward: '' },
  ...(metadata === undefined ? {} : { metadata }),
})
const never = new AbortController().signal
const judged = (grader: Grader | undefined, response: string, truth: string, metadata?: Record<string, unknown>) =>
  grader!({ response, truth, task: task(truth, metadata) }, never)

describe('in Python', () => {
  async function processesOf(source: string, more: object = {}): Promise<RewardProcesses> {
    const path = file(`reward${closers.length}_${Math.floor(performance.now() * 1000)}.py`, source)
    const processes = await startRewardProcesses({ file: path, function: 'reward', timeoutMs: 1500, ...more })
    closers.push(() => processes.close())
    return processes
  }

  test("a run that recorded the old path of the environments' reward file still finds it", async () => {
    mkdirSync(join(directory, 'recipes/environment/python'), { recursive: true })
    file('recipes/environment/python/reward.py', 'def reward(answer, task): return 0.5')
    const recorded = join(directory, 'kernels/environments/reward.py')
    const processes = await startRewardProcesses({ file: recorded, function: 'reward', timeoutMs: 1500 })
    closers.push(() => processes.close())
    expect(await processes.judge('', {})).toEqual({ score: 0.5 })
  })

  const many = `
import os, sys, time, asyncio
def reward(answer, task):
    if answer == 'raise': raise ValueError('too small')
    if answer == 'hang': time.sleep(600)
    if answer == 'spin':
        while True: pass
    if answer == 'exit': os._exit(3)
    if answer == 'sys.exit': sys.exit('enough')
    if answer == 'print':
        print('x' * 200_000, flush=True); print('to stderr', file=sys.stderr); os.write(1, b'{"id": 0, "score": 7}\\n')
        return 0.25
    if answer == 'nan': return float('nan')
    if answer == 'text': return '1'
    if answer == 'none': return None
    if answer == 'true': return True
    if answer == 'dict': return {'score': 0.5, 'why': 'half of ' + task['truth'] + ' in ' + task['metadata']['unit']}
    if answer == 'empty dict': return {}
    if answer == 'stdin': return 1 if sys.stdin.read() == '' else 0
    if answer == 'later': return later()
    return 1.0 if answer == task['truth'] else 0.0
async def later():
    await asyncio.sleep(0)
    return 0.75
`

  test('a number, a dict and what is awaited are scores; what raises, hangs, dies or says no number is a fault that says so', async () => {
    const printed: string[] = []
    const processes = await processesOf(many, { onPrinted: (line: string) => printed.push(line) })
    const ask = (answer: string) => processes.judge(answer, { truth: '4', metadata: { unit: 'm' } })
    expect(await ask('4')).toEqual({ score: 1 })
    expect(await ask('5')).toEqual({ score: 0 })
    expect(await ask('true')).toEqual({ score: 1 })
    expect(await ask('dict')).toEqual({ score: 0.5, why: 'half of 4 in m' })
    expect(await ask('later')).toEqual({ score: 0.75 })
    expect(await ask('print')).toEqual({ score: 0.25 })
    expect(await ask('stdin')).toEqual({ score: 1 })
    expect(await ask('raise')).toMatchObject({
      fault: 'raised',
      why: expect.stringMatching(/^ValueError: too small \(reward.*\.py:4\)$/),
    })
    expect(await ask('sys.exit')).toMatchObject({ fault: 'raised', why: expect.stringContaining('SystemExit: enough') })
    for (const answer of ['nan', 'text', 'none', 'empty dict'])
      expect(await ask(answer)).toMatchObject({ fault: 'no-number' })
    expect(await ask('exit')).toEqual({ fault: 'died', why: 'its process ended with exit code 3' })
    expect(await ask('4')).toEqual({ score: 1 })
    expect(await ask('hang')).toEqual({ fault: 'timeout', why: 'no score within 1500 ms' })
    expect(await ask('spin')).toMatchObject({ fault: 'timeout' })
    expect(await ask('4')).toEqual({ score: 1 })
    await until(() => printed.includes('to stderr'), 5000)
  })

  test('a process that is killed from outside costs nothing: its question is asked again, its start repeated, three times at most', async () => {
    const lives = join(directory, 'lives')
    writeFileSync(lives, '')
    const kill = 'os.kill(os.getpid(), 9)'
    const processes = await processesOf(
      `
import os, subprocess
with open('${lives}', 'a') as file: file.write('x')
life = os.path.getsize('${lives}')
if life < 3: ${kill}
def reward(answer, task):
    if answer == 'always' or life < 5:
        subprocess.Popen(['sleep', '600'])
        ${kill}
    return life
`,
      { timeoutMs: 60_000 },
    )
    expect(await processes.judge('x', {})).toEqual({ score: 5 })
    expect(await processes.judge('always', {})).toEqual({ fault: 'died', why: 'its process was ended by SIGKILL' })
    expect(await processes.judge('x', {})).toEqual({ score: 8 })
    await expect(processesOf(`import os\n${kill}`)).rejects.toThrow('was ended by SIGKILL')
  })

  test('a process that could not be replaced is started again with the next question', async () => {
    const [starts, broken] = [join(directory, 'starts'), join(directory, 'broken')]
    const processes = await processesOf(
      `
import os, time
with open('${starts}', 'a') as file: file.write('x')
if os.path.exists('${broken}'): raise RuntimeError('for a while')
def reward(answer, task):
    if answer == 'die': os._exit(1)
    time.sleep(0.3)
    return os.getpid()
`,
      { timeoutMs: 60_000, processes: 2 },
    )
    const scores = async () => {
      const replies = await Promise.all([1, 2, 3, 4].map(() => processes.judge('x', {})))
      return new Set(replies.map(reply => ('score' in reply ? reply.score : reply.why)))
    }
    expect((await scores()).size).toBe(2)
    writeFileSync(broken, '')
    expect(await processes.judge('die', {})).toMatchObject({ fault: 'died' })
    await until(() => readFileSync(starts, 'utf8') === 'xxx')
    expect((await scores()).size).toBe(1)
    rmSync(broken)
    await until(async () => (await scores()).size === 2)
  })

  test('a question that was called off is not asked again when its process is killed', async () => {
    const [asked, go] = [join(directory, 'asked'), join(directory, 'go')]
    const processes = await processesOf(
      `
import os, time
def reward(answer, task):
    with open('${asked}', 'a') as file: file.write(answer)
    while not os.path.exists('${go}'): time.sleep(0.01)
    if answer == 'x': os.kill(os.getpid(), 9)
    return 1
`,
      { timeoutMs: 60_000 },
    )
    const aborter = new AbortController()
    const calledOff = processes.judge('x', {}, aborter.signal)
    await until(() => existsSync(asked) && readFileSync(asked, 'utf8') === 'x')
    aborter.abort(new Error('called off'))
    await expect(calledOff).rejects.toThrow('called off')
    const next = processes.judge('y', {})
    writeFileSync(go, '')
    expect(await next).toEqual({ score: 1 })
    expect(readFileSync(asked, 'utf8')).toBe('xy')
  })

  test('one that hangs holds up nobody who has a process of his own, and none is left behind', async () => {
    const processes = await processesOf(
      `
import os, subprocess, time
def reward(answer, task):
    if answer == 'hang':
        child = subprocess.Popen(['sleep', '600'])
        open(task['file'], 'w').write(str(os.getpid()) + ' ' + str(child.pid))
        time.sleep(600)
    return 1
`,
      { processes: 2 },
    )
    const pids = join(directory, 'pids')
    const began = performance.now()
    const hanging = processes.judge('hang', { file: pids })
    const others = await Promise.all(Array.from({ length: 50 }, () => processes.judge('x', {})))
    expect(others.every(reply => 'score' in reply)).toBe(true)
    expect(performance.now() - began).toBeLessThan(1500)
    expect(await hanging).toMatchObject({ fault: 'timeout' })
    const started = readFileSync(pids, 'utf8').split(' ').map(Number)
    await until(() => started.every(pid => !isAlive(pid)), 5000)
  })

  test('a file that is not there, raises, or lacks the function is refused at the start with what Python said', async () => {
    const start = (source: string | null, name = 'reward') =>
      startRewardProcesses({
        file: source === null ? join(directory, 'absent.py') : file('broken.py', source),
        function: name,
        timeoutMs: 1000,
      })
    await expect(start(null)).rejects.toMatchObject({
      code: 'config.reward_not_loaded',
      message: expect.stringContaining('absent.py'),
    })
    await expect(start('import nothing_of_that_name')).rejects.toThrow("No module named 'nothing_of_that_name'")
    await expect(start('def rewrad(a, t): return 1')).rejects.toThrow("no function 'reward'")
    await expect(start('def rewrad(a, t): return 1')).rejects.toThrow('its functions: rewrad')
    await expect(start('raise SystemExit(2)')).rejects.toThrow('SystemExit')
    await expect(start('import os; os._exit(0)')).rejects.toThrow(
      'ended with exit code 0 while the function was imported',
    )
  })

  test('as the reward of a recipe it gets the answer by its place and the task whole, and its faults give no reward', async () => {
    const path = file(
      'judge.py',
      `
def judge(answer, task):
    if task['metadata'].get('raise'): raise KeyError('no rule')
    return {'score': len(answer) / 10, 'why': task['id'] + ' ' + task['messages'][0]['content'] + ' ' + str(len(task['response']))}
`,
    )
    const graders = await gradersOf({ name: 'python', file: path, function: 'judge' })
    const response = 'so <answer>\\boxed{abcd}</answer><|im_end|>'
    expect(await judged(graders.get(''), response, 'x')).toEqual({
      reward: 0.4,
      answer: 'abcd',
      how: 'python',
      why: `t1 q ${response.length}`,
    })
    expect(await judged(graders.get('python'), 'nothing', 'x')).toMatchObject({ reward: 0, answer: '' })
    expect(await judged(graders.get('python'), response, 'x', { raise: true })).toMatchObject({
      ...{ reward: null, how: 'raised', why: expect.stringContaining('no rule') },
    })
  })
})

describe('in TypeScript', () => {
  test('a function gets the ask and a sandbox; what it throws, or does not say in time, gives no reward', async () => {
    const graders = await gradersOf(
      { name: 'mine', timeoutMs: 3000 },
      {
        mine: ({ answer, task: { truth } }) => ({ score: answer === truth ? 1 : 0.5, why: `${answer} for ${truth}` }),
        plain: () => 0.3,
        throws: () => {
          throw new RangeError('too far')
        },
        hangs: () => new Promise(() => {}),
        nothing: () => Number.NaN,
        runs: async (_ask, { python }) => Number((await python('print(int(input()) / 8)', '2')).stdout),
      },
    )
    const response = '<answer>\\boxed{7}</answer>'
    expect(await judged(graders.get(''), response, '7')).toEqual({
      reward: 1,
      answer: '7',
      how: 'mine',
      why: '7 for 7',
    })
    expect(await judged(graders.get('plain'), response, '7')).toEqual({ reward: 0.3, answer: '7', how: 'plain' })
    expect(await judged(graders.get('throws'), response, '7')).toEqual({
      reward: null,
      how: 'raised',
      why: 'RangeError: too far',
    })
    expect(await judged(graders.get('hangs'), response, '7')).toEqual({
      reward: null,
      how: 'timeout',
      why: 'no score within 3000 ms',
    })
    expect(await judged(graders.get('nothing'), response, '7')).toMatchObject({ reward: null, how: 'no-number' })
    expect(await judged(graders.get('runs'), response, '7')).toMatchObject({ reward: 0.25 })
  })
})

describe('built in', () => {
  test('choice: the letter, in whatever it is wrapped, or the text of the choice; two letters are none', async () => {
    const choice = (await gradersOf({ name: 'choice' })).get('')
    const choices = ['carbon dioxide', 'water', 'A mixture of B and C', 'none']
    const how = async (answer: string, truth = 'C') =>
      (await judged(choice, `hm <answer>${answer}</answer>`, truth, { choices })) as { reward: number; how: string }
    for (const answer of [
      'C',
      '\\boxed{C}',
      '\\boxed{(C)}',
      '\\boxed{\\text{C}}',
      'c',
      '**C**',
      'C) A mixture of B and C',
      'C.',
      '$\\boxed{\\textbf{(C)}}$',
      'The answer is C',
      'the answer is (C).',
      'Option C',
      'A mixture of B and C',
      '{C}',
      'C: a mixture',
    ]) {
      expect([answer, (await how(answer)).reward]).toEqual([answer, 1])
    }
    for (const answer of [
      'B',
      '\\boxed{A}',
      'carbon dioxide',
      'E',
      'Cat',
      '',
      'C or D',
      '\\boxed{C, D}',
      'A and C',
      'unknown',
    ]) {
      expect([answer, (await how(answer)).reward]).toEqual([answer, 0])
    }
    const powers = { choices: ['52 m', '5² m', 'none'] }
    expect(await judged(choice, '<answer>5² m</answer>', 'B', powers)).toMatchObject({ reward: 1, answer: 'B' })
    expect((await how('Ｃ')).reward).toBe(1)
    expect((await how('C or D')).how).toBe('several-choices')
    expect((await how('E')).how).toBe('no-choice')
    expect(await judged(choice, 'C', 'C', { choices })).toMatchObject({ reward: 0, how: 'no-answer' })
    await expect(judged(choice, '<answer>C</answer>', 'seven', { choices })).rejects.toMatchObject({
      code: 'config.bad_truth',
    })
  })

  test('exact: equal but for blanks and Unicode forms', async () => {
    const exact = (await gradersOf({ name: 'exact', place: 'response' })).get('')
    expect(await judged(exact, ' a  b\n<|im_end|>', 'a b')).toMatchObject({ reward: 1 })
    expect(await judged(exact, 'A b', 'a b')).toMatchObject({ reward: 0, why: 'a different text' })
    expect(await judged(exact, '1,000', '1000')).toMatchObject({ reward: 1 })
    for (const [answer, truth] of [
      ['ＡＢ\u3000ｃ', 'AB c'],
      ['e\u0301', 'é'],
      ['ｶﾞ', 'ガ'],
    ] as const)
      expect([answer, (await judged(exact, answer, truth)) as object]).toMatchObject([answer, { reward: 1 }])
    for (const [answer, truth] of [
      ['5²', '52'],
      ['x₂', 'x2'],
      ['1½', '11⁄2'],
      ['①', '1'],
    ] as const)
      expect([answer, (await judged(exact, answer, truth)) as object]).toMatchObject([answer, { reward: 0 }])
    expect(await judged(exact, '<|im_end|>', 'a b')).toMatchObject({ reward: 0, how: 'no-answer' })
  })

  test('format: one answer at the end, and calls that can be read', async () => {
    const format = (await gradersOf({ name: 'format' })).get('')
    const call = '<tool_call>\n{"name": "p", "arguments": {}}\n</tool_call>'
    const fault = async (response: string) => (await judged(format, response, '')) as { why: string; reward: number }
    expect(await fault(`x ${call}<|im_end|>\n so <answer>4</answer><|im_end|>`)).toMatchObject({ reward: 1 })
    expect(await fault('x')).toMatchObject({ reward: 0, why: 'there is no answer element' })
    expect((await fault('<answer>1</answer><answer>2</answer>')).why).toBe('there are 2 answer elements')
    expect((await fault('<answer> </answer>')).why).toBe('the answer element is empty')
    expect((await fault('<answer>4</answer> and more')).why).toBe('something follows the answer element')
    expect((await fault(`<tool_call>{</tool_call><answer>4</answer>`)).why).toBe('tool call 1 of 1 cannot be read')
    expect((await fault('<answer><answer>4</answer>')).why).toBe('an answer tag has no partner')
  })

  test('weighted: a sum of others, and no reward where one of them has none', async () => {
    const graders = await gradersOf(
      { name: 'weighted', weights: { exact: 0.75, format: 0.25, own: 1 } },
      { own: ({ answer }) => (answer === 'x' ? 0 : Number.NaN) },
    )
    expect(await judged(graders.get(''), '<answer>x</answer>', 'x')).toMatchObject({ reward: 1, how: 'weighted' })
    expect(await judged(graders.get(''), '<answer>x</answer> ...', 'x')).toMatchObject({ reward: 0.75 })
    expect(await judged(graders.get(''), '<answer>y</answer>', 'x')).toMatchObject({
      reward: null,
      why: expect.stringContaining('own: '),
    })
  })

  test('a reward that there is not names the nearest, and sections that contradict themselves are refused', async () => {
    await expect(gradersOf({ name: 'maths' })).rejects.toThrow("unknown reward 'maths'; did you mean 'math'?")
    expect(() => config({ name: 'python' })).toThrow('needs a file')
    expect(() => config({ name: 'python', file: 'a.py', module: 'a' })).toThrow('not both')
    expect(() => config({ name: 'weighted' })).toThrow('needs weights')
    expect(() => config({ name: 'math', place: 'response' })).toThrow('looks for a box')
  })
})

test('a grader that is itself broken is asked again; after the last try there is no reward, which the log says, with why', async () => {
  const broken = async () => {
    throw new TroupeError('sandbox.no_python', { boundary: 'sandbox', retriable: false, message: 'there is no Python' })
  }
  const warn = jest.fn()
  const { byName, close } = await openGraders({
    config: config({ name: 'math', place: 'anywhere' }),
    sandbox: { run: broken, lanes: 1, close: async () => {} },
    log: { warn, debug: () => {} },
  })
  closers.push(close)
  const port = verifierPort(byName, manualEffects(0))
  for (const member of [0, 1]) {
    const trajectory = trajectoryId(groupId('g'), member)
    const asked = { trajectory, attempt: 0, reward: 'math', truth: '\\frac{1}{2}', response: `\\boxed{x+${member}}` }
    const fact = { type: 'reward.failed', trajectory, how: 'sandbox.no_python', why: 'there is no Python' }
    expect(await port({ type: 'answer.verify', ...asked, task: task(asked.truth) }, never)).toMatchObject({
      facts: [fact],
    })
  }
  expect(warn.mock.calls).toEqual([
    [{ reward: 'math', task: 't1', how: 'sandbox.no_python', why: 'there is no Python' }, 'the grader gave no reward'],
  ])
})

test('a grader that is back at its third try judges; one that is called off says nothing', async () => {
  let asked = 0
  const flaky: Grader = async () => {
    if (++asked < 3) throw new Error('not yet')
    return { reward: 1, answer: '4', how: 'late' }
  }
  const port = verifierPort(new Map([['', flaky]]), manualEffects(0))
  const trajectory = trajectoryId(groupId('g'), 0)
  const ask = { type: 'answer.verify', trajectory, attempt: 0, reward: '', truth: '4', response: '4' } as const
  expect(await port(ask, never)).toMatchObject({ facts: [{ type: 'reward.assigned', reward: 1, how: 'late' }] })
  const aborter = new AbortController()
  asked = 0
  const calledOff = port(ask, aborter.signal)
  aborter.abort()
  expect(await calledOff).toBeUndefined()
})
