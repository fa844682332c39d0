/**
 * Whole rollouts in real environments, with the run's own coordinator, executor and verifier, and a model that says what the test
 * says: the reward is the verifier's, and a fork goes on with the files of its turn.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { ownerKey, ownerPort } from '../../../actors/rollouts/agents'
import { coordinator } from '../../../actors/rollouts/coordinator'
import { grouper } from '../../../actors/rollouts/grouper'
import { oldestOpen, owner } from '../../../actors/rollouts/owner'
import { renderPort } from '../../../actors/rollouts/renderPort'
import { environmentTool } from '../../../actors/tools/environmentTool'
import { toolExecutor } from '../../../actors/tools/toolExecutor'
import { toolKey, toolPort } from '../../../actors/tools/toolPort'
import { environmentGrader } from '../../../actors/verification/environmentGrader'
import { verifier } from '../../../actors/verification/verifier'
import { verifierKey, verifierPort } from '../../../actors/verification/verifierPort'
import type { Renderer } from '../../../backends/renderer/renderer'
import { environmentSettings } from '../../../config'
import { RolloutEnvironments } from '../../../environments'
import { printToolCall } from '../../../kernels'
import type { GenerateTurn } from '../../../messages/commands'
import type { TrajectoryFact } from '../../../messages/facts'
import { executorId } from '../../../messages/ids'
import { terminalTasks } from '../../../recipes/terminal/tasks'
import { forkFacts } from '../../../replay/fork/forkFacts'
import { type Embedded, openTroupe } from '../../../runtime/embed'
import { nothing } from '../../../runtime/host/behaviour'
import { createLog } from '../../../runtime/log'
import { completed, ofType, requested } from '../../support/facts'
import { until } from '../../support/until'

jest.setTimeout(60_000)
const isRoot = process.platform === 'linux' && process.geteuid?.() === 0
const inEnvironment = isRoot ? describe : describe.skip

const root = mkdtempSync(join(tmpdir(), 'troupe-rollout-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

/** The task of Harbor's documentation: a file with a greeting. */
function helloWorld(test: string): string {
  const files = {
    'task.toml': 'version = "1.0"\n[verifier]\ntimeout_sec = 20\n',
    'instruction.md': 'Create a file called hello.txt with "Hello, world!" as the content.\n',
    'environment/Dockerfile': 'FROM ubuntu:24.04\nWORKDIR /app\n',
    'tests/test.sh': test,
  }
  const directory = mkdtempSync(join(root, 'hello-'))
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true })
    writeFileSync(join(directory, name), text)
  }
  return directory
}
const judge =
  '#!/bin/bash\nif [ "$(cat /app/hello.txt)" = "Hello, world!" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'

const renderer = {
  toolResponses: async () => ({ text: 'r', tokens: Int32Array.of(8, 9) }),
} as unknown as Renderer

/** Starts a run on a memory bus. `says`: the model's text of each turn. */
async function open(says: (ask: GenerateTurn) => string): Promise<Embedded> {
  const troupe = await openTroupe({ bus: 'memory:', run: 'r', log: createLog('test', { level: 'silent' }) })
  const { fx, host } = troupe
  const environments = new RolloutEnvironments({
    ...{ run: 'r', epoch: 0, fx, directory: join(root, 'store'), live: 4, idleMs: 60_000, snapshotMb: 1024 },
  })
  closers.push(async () => {
    await environments.close()
    await troupe.close()
  })
  const opened = async () => environments
  await host({
    behaviour: owner(
      coordinator({ turnTimeoutMs: 60_000 }),
      grouper({
        runSeed: 1,
        selection: { variant: 'none', keep: 2, minNegative: 0, minPositive: 0, rejectEqual: false },
      }),
    ),
    feeds: [{ topic: 'trajectories', from: 'committed' }],
    owner: 'owner',
    perform: ownerPort(renderPort(renderer, fx)),
    keyOf: ownerKey,
    oldestOpen,
  })
  const tools = new Map(['bash', 'str_replace_editor', 'submit'].map(name => [name, environmentTool(name, opened)]))
  await host({
    behaviour: toolExecutor(),
    feeds: [{ topic: 'tool-calls', from: 'latest' }],
    perform: toolPort(tools, executorId('x'), fx),
    keyOf: toolKey,
  })
  await host({
    behaviour: verifier(),
    feeds: [{ topic: 'verifications', from: 'latest' }],
    perform: verifierPort(new Map([['', environmentGrader(opened, {})]]), fx),
    keyOf: verifierKey,
  })
  const model = await host({
    behaviour: {
      name: 'model',
      initial: () => null,
      evolve: state => state,
      decide: (_state, input: GenerateTurn) =>
        input.type === 'turn.generate' ? { facts: [completed(input, says(input))], commands: [] } : nothing,
      pending: () => nothing,
    },
    feeds: [{ topic: 'turns', from: 'latest' }],
  })
  await model.live
  return troupe
}
const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

const limits = { ...requested('g', 0).limits, turns: 6, toolTimeoutMs: 20_000 }
const taskIn = async (directory: string) => {
  const [task] = await terminalTasks(directory, '', { ...environmentSettings(undefined), driver: 'local' })
  return { ...requested('g', 0).task, reward: '', environment: task!.environment }
}
const factsOf = async ({ journal }: Embedded) =>
  (await journal.read('trajectories', 0, 0, 1000)).map(({ message }) => message as TrajectoryFact)
const bash = (command: string) => printToolCall('bash', { command })
const submit = printToolCall('submit', {})

async function finished(troupe: Embedded, trajectory: string): Promise<readonly TrajectoryFact[]> {
  const own = async () => (await factsOf(troupe)).filter(fact => 'trajectory' in fact && fact.trajectory === trajectory)
  await until(async () => (await own()).some(({ type }) => type.startsWith('reward.')), 30_000)
  return own()
}

inEnvironment('a rollout', () => {
  const script = [
    bash('ls; cd /app; greeting=Hello'),
    bash('echo "$greeting" > hello.txt'),
    bash('echo "$greeting, world!" > hello.txt'),
    submit,
  ]

  test('gets the reward that the verifier wrote, and the log says what each turn left', async () => {
    const troupe = await open(({ turn }) => script[turn] ?? 'done')
    const task = await taskIn(helloWorld(judge))
    await troupe.journal.append([
      requested('g', 0, { groupSize: 1, at: Date.now(), deadlineMs: 600_000, tools: ['bash', 'submit'], limits, task }),
    ])
    const facts = await finished(troupe, 'g/0')
    expect(ofType(facts, 'reward.assigned')).toMatchObject([{ reward: 1, how: 'verifier' }])
    expect(ofType(facts, 'rollout.finished')).toMatchObject([{ outcome: 'answered', reason: 'submit' }])
    const changed = ofType(facts, 'tool.completed').map(({ files }) =>
      files?.changed.map(({ path, change }) => `${change} ${path}`),
    )
    expect(changed).toEqual([[], ['added /app/hello.txt'], ['changed /app/hello.txt'], undefined])
  })

  test('that is forked at a turn goes on with the files and the shell of that turn, whatever its parent did later', async () => {
    const parentTurns = [
      bash('cd /tmp; word=kept; echo 1 > /app/hello.txt'),
      bash('echo 2 > /app/hello.txt; rm -rf /app'),
      'done',
    ]
    const childTurn = bash('cat /app/hello.txt; pwd; echo $word; echo "Hello, world!" > /app/hello.txt')
    const troupe = await open(({ trajectory, turn }) =>
      trajectory === 'g/0' ? parentTurns[turn]! : turn === 1 ? childTurn : 'done',
    )
    const task = await taskIn(helloWorld(judge))
    const request = requested('g', 0, {
      groupSize: 1,
      at: Date.now(),
      deadlineMs: 600_000,
      tools: ['bash'],
      limits,
      task,
    })
    await troupe.journal.append([request])
    const entries = await finished(troupe, 'g/0')
    expect(ofType(entries, 'reward.assigned')).toMatchObject([{ reward: 0 }])
    const parent = {
      ...{ id: request.trajectory, partition: 0, request, finished: null, reward: null, closed: null, decision: null },
      entries: entries.map(
        message => ({ topic: 'trajectories', partition: 0, offset: 0, timestamp: 0, message }) as never,
      ),
      texts: parentTurns,
    }
    const plan = {
      parent,
      parentRun: troupe.journal.run,
      turn: 1,
      times: 1,
      deadlineMs: 600_000,
      order: 5,
      at: Date.now(),
    }
    const { facts } = forkFacts(plan)
    const claim = (await factsOf(troupe)).findIndex(({ type }) => type === 'partition.claimed')
    await troupe.journal.append(facts.map(fact => ('epoch' in fact ? { ...fact, epoch: claim as never } : fact)))
    const child = await finished(troupe, facts[0]!.type === 'rollout.requested' ? facts[0].trajectory : '')
    const said = ofType(child, 'tool.completed').at(-1)!
    expect(said.stdout).toBe('1\n/tmp\nkept\n')
    expect(said.files!.before).toBe(ofType(entries, 'tool.completed')[0]!.files!.snapshot)
    expect(ofType(child, 'reward.assigned')).toMatchObject([{ reward: 1 }])
  })

  test.each([
    ['writes no reward', '#!/bin/sh\ntrue\n', 'task.no_reward'],
    ['writes no number', '#!/bin/sh\necho yes > /logs/verifier/reward.txt\n', 'task.bad_reward'],
    ['does not end', '#!/bin/sh\nsleep 1000\n', 'environment.refused'],
  ])('has no reward, not 0, if its verifier %s', async (_title, test, how) => {
    const directory = helloWorld(test)
    const toml = join(directory, 'task.toml')
    writeFileSync(toml, readFileSync(toml, 'utf8').replace('20', '2'))
    const troupe = await open(() => 'done')
    await troupe.journal.append([
      requested('g', 0, {
        groupSize: 1,
        at: Date.now(),
        deadlineMs: 600_000,
        tools: ['bash'],
        limits,
        task: await taskIn(directory),
      }),
    ])
    const facts = await finished(troupe, 'g/0')
    expect(ofType(facts, 'reward.failed')).toMatchObject([{ how }])
    expect(ofType(facts, 'reward.assigned')).toEqual([])
  })
})

test('a directory without tasks, and a task that no driver here can run, are refused at once with what to do', async () => {
  await expect(terminalTasks(join(root, 'none'), '', undefined)).rejects.toThrow(/holds no task/)
  const directory = helloWorld(judge)
  writeFileSync(join(directory, 'task.toml'), '[environment]\nnetwork_mode = "public"\ngpus = 1\n')
  await expect(terminalTasks(directory, '', undefined)).rejects.toThrow(/network: public[\s\S]*1 GPUs/)
})
