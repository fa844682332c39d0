/**
 * Instances and rewards of reasoning-gym and verifiers, by their real packages. To import a package takes seconds: tests
 * that need no process of their own share one request for each package and one reward process.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type RewardProcesses, startRewardProcesses } from '../../backends/reward/rewardProcess'
import { environmentReward } from '../../recipes/environment'
import { type Instance, type InstancesRequest, instancesOf } from '../../recipes/environment/instances'
import { environmentTasks } from '../../recipes/environment/tasks'
import { isAlive } from '../support/cli'
import { until } from '../support/until'

jest.setTimeout(180_000)

type Package = InstancesRequest['package']
type Options = Record<string, unknown>

const askAll = (
  package_: Package,
  families: readonly (readonly [name: string, options?: Options | undefined])[],
  { seed = 5, deadlineMs }: { readonly seed?: number; readonly deadlineMs?: number } = {},
) => {
  const named = families.map(([name, options = {}]) => ({ name, options }))
  return instancesOf({ package: package_, families: named, split: 'train', seed, count: 6 }, deadlineMs)
}
const ask = async (package_: Package, name: string, options: Options = {}, how?: { readonly deadlineMs?: number }) =>
  (await askAll(package_, [[name, options]], how))[0]!

const rewards = (timeoutMs: number, processes: number) =>
  startRewardProcesses({
    file: environmentReward.file,
    python: environmentReward.interpreter,
    function: 'reward',
    timeoutMs,
    processes,
  })

const taskOf = (instance: Instance, package_: Package, response: string) => ({
  id: 'task',
  messages: [],
  truth: '',
  metadata: { package: package_, family: instance.family, entry: instance.entry },
  response,
})

const directory = mkdtempSync(join(tmpdir(), 'troupe-instances-'))
const hungPid = join(directory, 'hung')
let gym: readonly (readonly Instance[])[]
let sums: readonly (readonly Instance[])[]
let judges: RewardProcesses
/** Reward processes that a question may hang in or end. */
let doomed: RewardProcesses
/** These only wait for their deadlines, so they begin first. */
let hangingReward: Promise<unknown>
let hangingInstances: Promise<unknown>

beforeAll(async () => {
  process.env.PYTHONPATH = join(__dirname, '../support/environments')
  ;[gym, sums, judges, doomed] = await Promise.all([
    askAll('reasoning-gym', [['lcm'], ['prime_factorization', { min_value: 30, max_value: 30 }], ['gcd']]),
    askAll('verifiers', [
      ['toy-sums'],
      ['toy-taskset'],
      ['toy-sums', { fault: 'raise' }],
      ['toy-sums', { fault: 'hang' }],
      ['toy-sums', { fault: 'exit' }],
      ...['numbers', 'truths', 'none'].map(answers => ['toy-sums', { count: 2, answers }] as const),
    ]),
    rewards(60_000, 1),
    rewards(20_000, 2),
  ])
  hangingReward = doomed.judge('', taskOf(sums[3]![0]!, 'verifiers', 'x'))
  hangingInstances = ask('verifiers', 'toy-sums', { fault: `child and hang ${hungPid}` }, { deadlineMs: 20_000 }).catch(
    thrown => thrown,
  )
}, 180_000)
afterAll(async () => {
  delete process.env.PYTHONPATH
  await Promise.all([judges, doomed].map(one => one?.close()))
  rmSync(directory, { recursive: true })
}, 60_000)

test('the same seed gives the same instances, another seed gives others; one family named twice is two', async () => {
  const repeated = [['chain_sum', { min_terms: 2, max_terms: 2 }], ['gcd'], ['chain_sum', { min_terms: 6, max_terms: 6 }]] as const // biome-ignore format: one thing
  const [same, [other]] = await Promise.all([
    askAll('reasoning-gym', [['lcm'], ...repeated]),
    askAll('reasoning-gym', [['lcm']], { seed: 900 }),
  ])
  expect(gym[0]).toHaveLength(6)
  expect(same[0]).toEqual(gym[0])
  expect(other!.map(i => i.question)).not.toEqual(gym[0]!.map(i => i.question))

  const made = same.slice(1).map(all => all.slice(0, 3))
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
})

test("a data set's options reach it, and its own score judges: other spellings of the answer too", async () => {
  const [instance] = gym[1]!
  expect(instance!.question).toContain('30')
  const score = (answer: string) => judges.judge(answer, taskOf(instance!, 'reasoning-gym', answer))
  expect(await score('2 × 3 × 5')).toMatchObject({ score: 1 })
  expect(await score('5×3×2')).toMatchObject({ score: expect.any(Number) })
  expect((await score('2 × 3 × 7')) as { score: number }).not.toMatchObject({ score: 1 })
  expect(await score('no number')).toMatchObject({ score: 0, why: expect.stringContaining('cannot be read') })
  expect(await score('')).toMatchObject({ score: 0 })
  const strict = {
    ...taskOf(instance!, 'reasoning-gym', 'x'),
    metadata: { ...taskOf(instance!, 'reasoning-gym', 'x').metadata, passAt: 0.99 },
  }
  expect(await judges.judge('2 × 3 × 7', strict)).toMatchObject({ score: 0 })
  expect(await judges.judge('2 × 3 × 5', strict)).toMatchObject({ score: 1 })
})

test('a verifiers environment gives its rows with its system prompt, and its weighted rubric is the reward', async () => {
  const [instance] = sums[0]!
  expect(instance).toMatchObject({ question: expect.stringMatching(/^What is \d+ \+ \d+\?$/), system: 'Add.' })
  const right = `<answer>\\boxed{${instance!.entry.answer}}</answer>`
  const score = (response: string) => judges.judge('', taskOf(instance!, 'verifiers', response))
  expect(await score(right)).toMatchObject({ score: 1 })
  expect(await score(right + ' '.repeat(60))).toMatchObject({ score: 0.75 })
  expect(await score(right + '<|im_end|>'.repeat(6))).toMatchObject({ score: 1 }) // no part of what the model says
  expect(await score('no')).toMatchObject({ score: 0.25 })
})

test('a verifiers taskset, the interface since 0.3, gives its tasks by split, and its weighted rewards are the reward', async () => {
  const [instance] = sums[1]!
  expect(instance).toMatchObject({ question: expect.stringMatching(/^What is \d+ \+ \d+\?$/), system: 'Add.' })
  const { answer } = instance!.entry.data as { readonly answer: string }
  const score = (response: string) => judges.judge('', taskOf(instance!, 'verifiers', response))
  expect(await score(`\\boxed{${answer}}`)).toMatchObject({ score: 1 })
  expect(await score(`\\boxed{${answer}}${' x'.repeat(60)}`)).toMatchObject({ score: 0.75 })
  expect(await score('no')).toMatchObject({ score: 0.25 })
  expect(await score('raise')).toMatchObject({ fault: 'raised', why: expect.stringContaining('no such field') })
})

test('what a reward function raises is a fault that says so, where the rubric itself would count 0', async () => {
  const said = await judges.judge('', taskOf(sums[2]![0]!, 'verifiers', 'x'))
  expect(said).toMatchObject({ fault: 'raised', why: expect.stringContaining('no such field') })
})

test('an answer of 0 or False is an answer; none is empty', () => {
  const answers = sums.slice(5).map(all => new Set(all.map(({ entry }) => entry.answer)))
  expect(answers).toEqual([new Set([0, 1]), new Set([false, true]), new Set([''])])
})

test.each([
  ['reasoning-gym', 'lmc', {}, /lmc/],
  ['reasoning-gym', 'lcm', { colour: 'red' }, /colour/],
  ['verifiers', 'no-such-environment', {}, /no-such-environment.*installed|no_such_environment/s],
  ['verifiers', 'toy-sums', { fault: 'load' }, /the data set is not there/],
] as const)('%s: %s %j is refused, and the family and the fault are named', async (package_, name, options, said) => {
  await expect(ask(package_, name, options)).rejects.toMatchObject({
    code: 'config.bad_environment',
    message: expect.stringMatching(said),
  })
})

test('what a package has started is ended with it and holds up nobody; so is what one that hangs has started', async () => {
  const left = join(directory, 'left')
  const isGone = (pidFile: string) => until(() => !isAlive(Number(readFileSync(pidFile, 'utf8'))), 10_000)
  // The child holds what the package itself has of stderr.
  expect(await ask('verifiers', 'toy-sums', { fault: `child ${left}` })).toHaveLength(6)
  await isGone(left)
  expect(await hangingInstances).toMatchObject({ message: expect.stringContaining('not made within 20 s') })
  if (existsSync(hungPid)) await isGone(hungPid) // beside much other work it may not have come to it
})

test('a reward function that hangs or ends its process costs its own answer, and the next is judged', async () => {
  expect(await hangingReward).toMatchObject({ fault: 'timeout' })
  expect(await doomed.judge('', taskOf(sums[4]![0]!, 'verifiers', 'x'))).toMatchObject({ fault: 'died' })
  const [sound] = gym[2]!
  const answer = String(sound!.entry.answer)
  expect(await doomed.judge(answer, taskOf(sound!, 'reasoning-gym', answer))).toMatchObject({ score: 1 })
})

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

test('a family that the evaluation takes all of is refused, by its name', () => {
  const train = [[instance('a', 0, 'One?')], [instance('b', 0, 'Two?')]]
  expect(() => environmentTasks(train, [[instance('b', 0, ' TWO?')]], options)).toThrow(
    expect.objectContaining({
      code: 'config.bad_environment',
      message: expect.stringContaining('b: no instance is left'),
    }),
  )
})
