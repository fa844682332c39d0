/** Instances and rewards of reasoning-gym and verifiers, by their real packages. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startRewardProcesses } from '../../backends/reward/rewardProcess'
import { environmentReward } from '../../recipes/environment'
import { type Instance, type InstancesRequest, instancesOf } from '../../recipes/environment/instances'
import { environmentTasks } from '../../recipes/environment/tasks'
import { isAlive } from '../support/cli'
import { until } from '../support/until'

const packages = join(__dirname, '../support/environments')
beforeAll(() => {
  process.env.PYTHONPATH = packages
})
afterAll(() => {
  delete process.env.PYTHONPATH
})

const ask = async (
  package_: InstancesRequest['package'],
  name: string,
  options: Record<string, unknown> = {},
  { seed = 5, deadlineMs }: { readonly seed?: number; readonly deadlineMs?: number } = {},
): Promise<readonly Instance[]> => {
  const request = { package: package_, families: [{ name, options }], split: 'train', seed, count: 6 } as const
  return (await instancesOf(request, deadlineMs))[0]!
}

const rewards = (timeoutMs = 60_000) =>
  startRewardProcesses({
    file: environmentReward.file,
    python: environmentReward.interpreter,
    function: 'reward',
    timeoutMs,
  })

const taskOf = (instance: Instance, package_: string, response: string) => ({
  id: 'task',
  messages: [],
  truth: '',
  metadata: { package: package_, family: instance.family, entry: instance.entry },
  response,
})

test('the same seed gives the same instances, another seed gives others', async () => {
  const [a, b, c] = await Promise.all([
    ask('reasoning-gym', 'lcm'),
    ask('reasoning-gym', 'lcm'),
    ask('reasoning-gym', 'lcm', {}, { seed: 900 }),
  ])
  expect(a).toHaveLength(6)
  expect(b).toEqual(a)
  expect(c.map(i => i.question)).not.toEqual(a.map(i => i.question))
}, 120_000)

test("a data set's options reach it, and its own score judges: other spellings of the answer too", async () => {
  const [instance] = await ask('reasoning-gym', 'prime_factorization', { min_value: 30, max_value: 30 })
  expect(instance!.question).toContain('30')
  const processes = await rewards()
  try {
    const score = (answer: string) => processes.judge(answer, taskOf(instance!, 'reasoning-gym', answer))
    expect(await score('2 × 3 × 5')).toMatchObject({ score: 1 })
    expect(await score('5×3×2')).toMatchObject({ score: expect.any(Number) })
    expect((await score('2 × 3 × 7')) as { score: number }).not.toMatchObject({ score: 1 })
    expect(await score('no number')).toMatchObject({ score: 0, why: expect.stringContaining('cannot be read') })
    expect(await score('')).toMatchObject({ score: 0 })
    const strict = {
      ...taskOf(instance!, 'reasoning-gym', 'x'),
      metadata: { ...taskOf(instance!, 'reasoning-gym', 'x').metadata, passAt: 0.99 },
    }
    expect(await processes.judge('2 × 3 × 7', strict)).toMatchObject({ score: 0 })
    expect(await processes.judge('2 × 3 × 5', strict)).toMatchObject({ score: 1 })
  } finally {
    await processes.close()
  }
}, 120_000)

test('a verifiers environment gives its rows with its system prompt, and its weighted rubric is the reward', async () => {
  const [instance] = await ask('verifiers', 'toy-sums')
  expect(instance).toMatchObject({ question: expect.stringMatching(/^What is \d+ \+ \d+\?$/), system: 'Add.' })
  const processes = await rewards()
  try {
    const right = `<answer>\\boxed{${instance!.entry.answer}}</answer>`
    const score = (response: string) => processes.judge('', taskOf(instance!, 'verifiers', response))
    expect(await score(right)).toMatchObject({ score: 1 })
    expect(await score(right + ' '.repeat(60))).toMatchObject({ score: 0.75 })
    expect(await score(right + '<|im_end|>'.repeat(6))).toMatchObject({ score: 1 }) // no part of what the model says
    expect(await score('no')).toMatchObject({ score: 0.25 })
  } finally {
    await processes.close()
  }
}, 120_000)

test('a verifiers taskset, the interface since 0.3, gives its tasks by split, and its weighted rewards are the reward', async () => {
  const [instance] = await ask('verifiers', 'toy-taskset')
  expect(instance).toMatchObject({ question: expect.stringMatching(/^What is \d+ \+ \d+\?$/), system: 'Add.' })
  const { answer } = instance!.entry.data as { readonly answer: string }
  const processes = await rewards()
  try {
    const score = (response: string) => processes.judge('', taskOf(instance!, 'verifiers', response))
    expect(await score(`\\boxed{${answer}}`)).toMatchObject({ score: 1 })
    expect(await score(`\\boxed{${answer}}${' x'.repeat(60)}`)).toMatchObject({ score: 0.75 })
    expect(await score('no')).toMatchObject({ score: 0.25 })
    expect(await score('raise')).toMatchObject({ fault: 'raised', why: expect.stringContaining('no such field') })
  } finally {
    await processes.close()
  }
}, 120_000)

test('what a reward function raises is a fault that says so, where the rubric itself would count 0', async () => {
  const [instance] = await ask('verifiers', 'toy-sums', { fault: 'raise' })
  const processes = await rewards()
  try {
    const said = await processes.judge('', taskOf(instance!, 'verifiers', 'x'))
    expect(said).toMatchObject({ fault: 'raised', why: expect.stringContaining('no such field') })
  } finally {
    await processes.close()
  }
}, 120_000)

test('a reward function that hangs or ends its process costs its own answer, and the next is judged', async () => {
  const [hangs] = await ask('verifiers', 'toy-sums', { fault: 'hang' })
  const [exits] = await ask('verifiers', 'toy-sums', { fault: 'exit' })
  const [sound] = await ask('reasoning-gym', 'gcd')
  const processes = await rewards(20_000)
  try {
    expect(await processes.judge('', taskOf(hangs!, 'verifiers', 'x'))).toMatchObject({ fault: 'timeout' })
    expect(await processes.judge('', taskOf(exits!, 'verifiers', 'x'))).toMatchObject({ fault: 'died' })
    const answer = String(sound!.entry.answer)
    expect(await processes.judge(answer, taskOf(sound!, 'reasoning-gym', answer))).toMatchObject({ score: 1 })
  } finally {
    await processes.close()
  }
}, 180_000)

test.each([
  ['reasoning-gym', 'lmc', {}, /lmc/],
  ['reasoning-gym', 'lcm', { colour: 'red' }, /colour/],
  ['verifiers', 'no-such-environment', {}, /no-such-environment.*installed|no_such_environment/s],
  ['verifiers', 'toy-sums', { fault: 'load' }, /the data set is not there/],
] as const)(
  '%s: %s %j is refused, and the family and the fault are named',
  async (package_, name, options, said) => {
    await expect(ask(package_, name, options)).rejects.toMatchObject({
      code: 'config.bad_environment',
      message: expect.stringMatching(said),
    })
  },
  120_000,
)

test('what a package has started is ended with it and holds up nobody; so is what one that hangs has started', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-instances-'))
  const [left, hung] = [join(directory, 'left'), join(directory, 'hung')]
  const isGone = (pidFile: string) => until(() => !isAlive(Number(readFileSync(pidFile, 'utf8'))), 10_000)
  try {
    // The child holds what the package itself has of stderr.
    expect(await ask('verifiers', 'toy-sums', { fault: `child ${left}` })).toHaveLength(6)
    await isGone(left)
    const hanging = ask('verifiers', 'toy-sums', { fault: `child and hang ${hung}` }, { deadlineMs: 20_000 })
    await expect(hanging).rejects.toThrow('not made within 20 s')
    if (existsSync(hung)) await isGone(hung) // beside much other work it may not have come to it
  } finally {
    rmSync(directory, { recursive: true })
  }
}, 180_000)

test('an answer of 0 or False is an answer; none is empty', async () => {
  const families = ['numbers', 'truths', 'none'].map(answers => ({ name: 'toy-sums', options: { count: 2, answers } }))
  const made = await instancesOf({ package: 'verifiers', families, split: 'train', seed: 5, count: 2 })
  const answers = made.map(all => new Set(all.map(({ entry }) => entry.answer)))
  expect(answers).toEqual([new Set([0, 1]), new Set([false, true]), new Set([''])])
}, 180_000)

const instance = (family: string, index: number, question: string): Instance => ({
  ...{ family, index, question, system: null, entry: { answer: '1' } },
})
const options = { source: 'reasoning-gym', system: undefined, passAt: undefined }

test('families take turns, and no question of the evaluation is trained on', () => {
  const train = [
    [instance('a', 0, 'One?'), instance('a', 1, ' two? '), instance('a', 2, 'Three?')],
    [instance('b', 0, 'Four?')],
  ]
  const source = environmentTasks(train, [[instance('a', 0, 'Two?')]], options)
  const asked = Array.from({ length: 5 }, (_, index) => source.train(index).messages.at(-1)!.content)
  expect(asked).toEqual(['One?', 'Four?', 'Three?', 'Four?', 'One?'])
  expect(source.evaluation(0).messages).toEqual([{ role: 'user', content: 'Two?' }])
  expect(source).toMatchObject({ dropped: { 'a: also in the evaluation': 1 }, size: 4 })
})

test('one family named twice is two, whose tasks have ids of their own', async () => {
  const families = [
    { name: 'chain_sum', options: { min_terms: 2, max_terms: 2 } },
    { name: 'gcd', options: {} },
    { name: 'chain_sum', options: { min_terms: 6, max_terms: 6 } },
  ]
  const made = await instancesOf({ package: 'reasoning-gym', families, split: 'train', seed: 5, count: 3 })
  const terms = (all: readonly Instance[]) => all.map(({ question }) => question.match(/\d+/g)!.length)
  expect([terms(made[0]!), terms(made[2]!)]).toEqual([
    [2, 2, 2],
    [6, 6, 6],
  ])
  const { train, size } = environmentTasks(made, [], options)
  expect(size).toBe(9)
  const tasks = Array.from({ length: 9 }, (_, index) => train(index))
  expect(new Set(tasks.map(({ id }) => id)).size).toBe(9)
  expect(tasks.map(({ metadata }) => metadata!.family).slice(0, 3)).toEqual(['chain_sum', 'gcd', 'chain_sum'])
}, 120_000)

test('a family that the evaluation takes all of is refused, by its name', () => {
  const train = [[instance('a', 0, 'One?')], [instance('b', 0, 'Two?')]]
  expect(() => environmentTasks(train, [[instance('b', 0, ' TWO?')]], options)).toThrow(
    expect.objectContaining({
      code: 'config.bad_environment',
      message: expect.stringContaining('b: no instance is left'),
    }),
  )
})
