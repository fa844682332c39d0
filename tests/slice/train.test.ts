/** Whole runs of the quickstart, small: real engine, trainer, renderer and tool processes, driven by the command line. */
import { mkdtempSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Message, stripTimes, type TopicName } from '../../messages'
import { endAll, isAlive, messagesOf, type Running, troupe as start } from '../support/cli'
import { descendantsOf } from '../support/descendants'
import { ofType } from '../support/facts'
import { smallRun } from '../support/smallRun'
import { until } from '../support/until'

jest.setTimeout(600_000)

const small = smallRun(600)

const started: Running[] = []
const troupe = (args: readonly string[]): Running => {
  const run = start(args)
  started.push(run)
  return run
}
afterEach(() => endAll(started))

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const factTopics: readonly TopicName[] = ['runs', 'trajectories', 'learner']
const allFacts = async (bus: string, run: string): Promise<Message[]> =>
  (await Promise.all(factTopics.map(topic => messagesOf(bus, run, topic)))).flat()

/** Facts without times, sorted; which process owned what, and when progress was sampled, is no part of what happened. */
function comparable(facts: readonly Message[]): string[] {
  const plain = (_key: string, value: unknown) =>
    value instanceof Int32Array || value instanceof Float32Array ? [...value] : value
  return facts
    .filter(({ type }) => !type.endsWith('.claimed') && type !== 'stage.progressed')
    .map(fact => JSON.stringify(stripTimes(fact), plain))
    .sort()
}

/** The facts of one run that the other lacks, or has fewer times, each cut to what tells it apart. */
function beyond(facts: readonly string[], others: readonly string[]): string[] {
  const left = new Map<string, number>()
  for (const fact of others) left.set(fact, (left.get(fact) ?? 0) + 1)
  return facts
    .filter(fact => {
      const count = left.get(fact) ?? 0
      left.set(fact, count - 1)
      return count <= 0
    })
    .map(fact => fact.slice(0, 500))
}

/** How many steps the run on this log has completed. */
const stepsOf = async (bus: string) => ofType(await messagesOf(bus, 'r', 'learner'), 'step.completed').length

test('two runs of 3 steps with one seed in deterministic mode have the same facts apart from times', async () => {
  const bus = join(directory, 'same')
  const outcomes: string[][] = []
  for (const name of ['first', 'second']) {
    const args = ['train', 'quickstart', '--json', '--steps', '3', '--run', 'r', '--bus', `lmdb:${bus}`]
    const { code, stdout, stderr } = await troupe([...args, '--set', 'engine.deterministic=true', ...small]).done
    expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
    const lines = stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line) as { type: string; step?: number })
    expect(lines.filter(l => l.type === 'step').map(l => l.step)).toEqual([1, 2, 3])
    expect(lines.at(-1)).toMatchObject({
      type: 'summary',
      run: 'r',
      evalBefore: { n: 8 },
      evalAfter: { n: 8 },
      wallSeconds: expect.any(Number),
    })
    const facts = await allFacts(bus, 'r')
    expect(ofType(facts, 'run.finished')).toHaveLength(1)
    outcomes.push(comparable(facts))
    // The paths of weights stand in facts: both runs must have lain at the same place.
    renameSync(bus, `${bus}-${name}`)
  }
  const [first, second] = outcomes
  expect(first!.length).toBeGreaterThan(500)
  expect(beyond(first!, second!).slice(0, 3)).toEqual([])
  expect(beyond(second!, first!).slice(0, 3)).toEqual([])
})

test('a run that Ctrl-C ends and that is later killed in the middle of a rollout leaves no process, and each time goes on from its turns', async () => {
  const bus = join(directory, 'ended')
  const args = ['--json', '--bus', `lmdb:${bus}`]
  /** Waits until the log has at least `count` facts of this type about a step's turns. */
  const untilTurns = (run: Running, type: 'turn.asked' | 'turn.completed', step: string, count: number) =>
    until(
      async () => {
        if (run.process.exitCode !== null) throw new Error((await run.done).stderr)
        const turns = ofType(await messagesOf(bus, 'r', 'trajectories'), type)
        return turns.filter(({ trajectory }) => trajectory.startsWith(step)).length >= count
      },
      400_000,
      250,
    )
  // It must not end by itself.
  const first = troupe(['train', 'quickstart', '--run', 'r', '--steps', '400', ...args, ...small])
  await untilTurns(first, 'turn.asked', 's0001', 1)
  const ofFirst = descendantsOf(first.process.pid!)
  first.process.kill('SIGINT')
  const stopped = await first.done
  expect({ code: stopped.code, stderr: stopped.stderr.slice(-2000) }).toMatchObject({ code: 130 })
  await until(() => !ofFirst.some(isAlive), 2_000) // the kernel ends the fork server as its parent ends

  const nextButOne = `s${String((await stepsOf(bus)) + 2).padStart(4, '0')}`
  const second = troupe(['train', 'quickstart', '--resume', 'r', '--steps', '400', ...args])
  await untilTurns(second, 'turn.completed', nextButOne, 4)
  const ofSecond = descendantsOf(second.process.pid!)
  expect(ofSecond.length).toBeGreaterThanOrEqual(3)
  second.process.kill('SIGKILL')
  await second.done
  await until(() => !ofSecond.some(isAlive), 10_000)

  const before = await messagesOf(bus, 'r', 'trajectories')
  const done = new Set(ofType(before, 'turn.completed').map(f => `${f.trajectory}#${f.turn}`))
  const asked = ofType(before, 'turn.asked').length
  const steps = (await stepsOf(bus)) + 2
  const { code, stdout, stderr } = await troupe([
    'train',
    'quickstart',
    '--resume',
    'r',
    '--steps',
    `${steps}`,
    ...args,
  ]).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })

  const after = await allFacts(bus, 'r')
  // No turn that was finished is asked for again, none counts twice, and the curve goes on.
  for (const ask of ofType(after, 'turn.asked').slice(asked))
    expect(done).not.toContain(`${ask.trajectory}#${ask.turn}`)
  const turns = ofType(after, 'turn.completed').map(f => `${f.trajectory}#${f.turn}`)
  expect(new Set(turns).size).toBe(turns.length)
  const each = Array.from({ length: steps }, (_, n) => n + 1)
  expect(ofType(after, 'step.completed').map(f => f.step)).toEqual(each)
  expect(ofType(after, 'step.started').map(f => f.step)).toEqual(each)
  expect(ofType(after, 'run.resumed')).toHaveLength(2)
  expect(JSON.parse(stdout.trim().split('\n').at(-1)!)).toMatchObject({ type: 'summary', outcome: 'done', steps })
})

test('a run cannot be started twice under one name, nor resumed when it is not there', async () => {
  const bus = `lmdb:${join(directory, 'names')}`
  const missing = await troupe(['train', 'quickstart', '--resume', 'nobody', '--bus', bus]).done
  expect(missing.code).not.toBe(0)
  expect(missing.stderr).toContain("no run 'nobody'")
  const unknown = await troupe(['train', 'quickstart', '--set', 'train.stepz=3', '--bus', bus]).done
  expect(unknown.code).toBe(2)
  expect(unknown.stderr).toContain('steps')
})
