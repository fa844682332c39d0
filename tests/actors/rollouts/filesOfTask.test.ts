/** Rollouts of tasks with an environment: which files a call finds, in which order calls run, and how a rollout is submitted. */
import { coordinator } from '../../../actors/rollouts/coordinator'
import type { RenderRequest } from '../../../actors/rollouts/nextActions'
import { printToolCall } from '../../../kernels'
import type { Command, ExecuteTool, GenerateTurn, VerifyAnswer } from '../../../messages/commands'
import type { FilesChanged, TaskEnvironment, ToolCompleted } from '../../../messages/facts'
import { executorId } from '../../../messages/ids'
import { claim, completed, ofType, requested } from '../../support/facts'
import { world } from '../../support/world'

const environment: TaskEnvironment = { directory: '/tasks/a', digest: 'd', driver: 'local' }
const task = requested('g', 0).task
const tools = ['bash', 'str_replace_editor', 'submit']

function start(change: Parameters<typeof requested>[2] = {}) {
  const w = world(coordinator({ turnTimeoutMs: 10_000 }))
  w.append(claim(), requested('g', 0, { groupSize: 1, tools, task: { ...task, environment }, ...change }))
  return w
}
type World = ReturnType<typeof start>

const isExecute = (command: Command): command is ExecuteTool => command.type === 'tool.execute'
const asks = (w: World) => w.commands.filter(isExecute)
const generate = (w: World) => w.commands.filter((c): c is GenerateTurn => c.type === 'turn.generate').at(-1)!
const bash = (command: string) => printToolCall('bash', { command })

function files(snapshot: string): FilesChanged {
  return { snapshot, before: '', files: 1, bytes: 1, changed: [], changes: 0 }
}

function ended({ trajectory, turn, call, attempt, tool }: ExecuteTool, snapshot?: string): ToolCompleted {
  return {
    ...{ type: 'tool.completed', at: 1, trajectory, turn, call, attempt, tool, status: 'ok', text: 't', stdout: '' },
    ...{ stderr: '', exitCode: 0, wallMs: 1, cpuMs: 0, executor: executorId('e') },
    ...(snapshot === undefined ? {} : { files: files(snapshot) }),
  }
}

test('calls of a turn that act on files are asked one after the other, each with the calls before it', () => {
  const w = start()
  w.append(completed(generate(w), `${bash('one')}${bash('two')}`))
  const [first, ...others] = asks(w)
  expect(others).toEqual([])
  expect(first!.environment).toEqual({ task: environment, calls: [], timeoutMs: 4000 })
  w.append(ended(first!, 's1'))
  const second = asks(w).at(-1)!
  expect(second.call).toBe(1)
  const one = { tool: 'bash', arguments: { command: 'one' }, snapshot: 's1' }
  expect(second.environment!.calls).toEqual([one])
  w.append(ended(second))
  w.append({ ...contextOf(w), turn: 0 })
  w.append(completed(generate(w), bash('three')))
  const two = { tool: 'bash', arguments: { command: 'two' }, snapshot: null }
  expect(asks(w).at(-1)!.environment!.calls).toEqual([one, two])
})

test('a call that is lost is asked again with the same files, alone', () => {
  const w = start()
  w.append(completed(generate(w), `${bash('one')}${bash('two')}`))
  w.commands.length = 0
  w.restart(claim('b'))
  expect(asks(w).map(({ call, attempt }) => [call, attempt])).toEqual([[0, 1]])
  expect(asks(w)[0]!.environment!.calls).toEqual([])
})

test('a call of submit ends the rollout once the calls of its turn have ended, and the verifier gets the files', () => {
  const w = start()
  w.append(completed(generate(w), `${bash('one')}${printToolCall('submit', {})}`))
  const [first, submit] = asks(w)
  expect(submit!.environment).toBeUndefined()
  w.append(ended(submit!))
  expect(ofType(w.log, 'rollout.finished')).toEqual([])
  w.append(ended(first!, 's1'))
  expect(ofType(w.log, 'rollout.finished')).toMatchObject([{ outcome: 'answered', reason: 'submit' }])
  const verify = w.commands.find((c): c is VerifyAnswer => c.type === 'answer.verify')!
  expect(verify.environment!.calls).toMatchObject([{ snapshot: 's1' }])
})

test('a call that cannot be executed is answered once, and holds up no call that acts on files', () => {
  const w = start()
  w.append(completed(generate(w), `<tool_call>{"name": </tool_call>${bash('one')}`))
  const [one, ...others] = asks(w)
  expect([one!.call, others.length]).toEqual([1, 0])
  w.append(ended(one!, 's1'))
  expect(ofType(w.log, 'tool.completed').map(({ call }) => call)).toEqual([0, 1])
  expect(asks(w)).toHaveLength(1)
})

test("a task without an environment has nothing of it, whatever its recipe's tools are named", () => {
  const w = start({ task })
  w.append(completed(generate(w), `${bash('one')}${printToolCall('submit', {})}`))
  const both = asks(w)
  expect(both.map(({ environment: at }) => at)).toEqual([undefined, undefined])
  for (const ask of both) w.append(ended(ask))
  expect(ofType(w.log, 'rollout.finished')).toEqual([])
  expect(w.requests).toHaveLength(1)
})

function contextOf(w: World) {
  const { trajectory, epoch } = w.takeRequest(0) as RenderRequest
  return { type: 'context.appended', at: 1, trajectory, turn: 0, epoch, text: '', tokens: Int32Array.of(9) } as const
}

test('`submit` of a task of several steps brings the files, has the deadline of the verifier, and ends the rollout after the last step', () => {
  const steps = { count: 2, timeoutMs: 900_000 }
  const w = start({ task: { ...task, environment: { ...environment, steps } } })
  w.append(completed(generate(w), printToolCall('submit', {})))
  const first = asks(w).at(-1)!
  expect(first).toMatchObject({ tool: 'submit', timeoutMs: 900_000, environment: { calls: [] } })
  const step = { name: 'one', rewards: { reward: 1 }, over: false }
  w.append({ ...ended(first, 's1'), step })
  w.append({ ...contextOf(w), turn: 0 })
  w.append(completed(generate(w), printToolCall('submit', {})))
  const second = asks(w).at(-1)!
  expect(second.environment!.calls).toEqual([{ tool: 'submit', arguments: {}, snapshot: 's1', step }])
  w.append(ended(second))
  expect(ofType(w.log, 'rollout.finished')).toMatchObject([{ outcome: 'answered', reason: 'submit' }])
})
