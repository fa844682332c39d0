/**
 * Who only reads `runs` and `learner` does not believe a learner that was replaced either: not the roles that wait for the
 * run's end, nor a resume that looks for where to begin, nor the commands that show a run, live or from its log.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fence } from '../../../actors/ownership/fencing'
import { beginOf, saidOf } from '../../../actors/run/roles/followed'
import { endOf } from '../../../actors/run/runStart'
import { encode, type Message } from '../../../messages'
import type { AlarmRaised, DrawsClaimed, EvaluationCompleted, Fact, RunFinished } from '../../../messages/facts'
import { epoch, groupId, policyVersion, runId } from '../../../messages/ids'
import { watchRun } from '../../../replay/log/watchRun'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import type { NewRecord } from '../../../runtime/bus/bus'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { openJournal } from '../../../runtime/journal/openJournal'
import { troupe } from '../../support/cli'
import { published } from '../../support/facts'
import { quickstartHistory, saveHistory } from '../../support/histories'
import { until } from '../../support/until'

jest.setTimeout(60_000)

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

const run = runId('r')
const under = (at: number) => ({ at: 0, learnerEpoch: epoch(at) })
const claimed = (at: number): DrawsClaimed => ({ type: 'draws.claimed', owner: `o${at}`, ...under(at) })
const ended = (at: number, reason: string): RunFinished => ({
  ...{ type: 'run.finished', run, outcome: 'done', reason, steps: 1, summary: {} },
  ...under(at),
})
const evaluated = (at: number, step: number, passAt1: number): EvaluationCompleted => ({
  ...{ type: 'evaluation.completed', name: 'held-out', step, version: policyVersion(step), passAt1 },
  ...{ standardError: 0, n: 1, samples: 1, metrics: {}, ...under(at) },
})
const raised = (at: number, alarm: string): AlarmRaised => ({ type: 'alarm.raised', alarm, message: '', ...under(at) })

async function open() {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const journal = openJournal(bus, memoryBlobs(), run)
  await journal.create(1)
  return journal
}

test('a role that waits for the end of the run does not end because a replaced learner says so, late or in its log', async () => {
  const journal = await open()
  await journal.append([claimed(3), claimed(8), ended(3, 'in the log')])
  const onError = (error: Error) => {
    throw error
  }
  const { next: since } = await journal.offsets('runs', 0)
  const ends = [await endOf(journal, 'a', onError), await endOf(journal, 'b', onError, since)]
  cleanups.push(async () => {
    for (const end of ends) await end.close()
  })
  expect(ends.map(({ over }) => over)).toEqual([false, false])
  await journal.append([ended(3, 'late'), ended(8, 'it is')])
  for (const { finished } of ends) expect(await finished).toMatchObject({ reason: 'it is' })
  expect(await endOf(journal, 'c', onError)).toMatchObject({ over: true })
})

test('a resume does not take the evaluation for made, and the weights for published, that a replaced learner says late', async () => {
  const journal = await open()
  const draw = (begins: number): Fact => ({
    ...{ type: 'curriculum.advanced', step: 0, purpose: 'eval', groups: [groupId('e0000.0000')], cursor: 1, order: 1 },
    ...{ begins: [begins], ...under(8) },
  })
  await journal.append([claimed(3), claimed(8), draw(5), evaluated(3, 0, 1)])
  expect(beginOf(await saidOf(journal), { learns: true })('trajectories', 0)).toBe(5)
  const learnerClaimed: Fact = { type: 'learner.claimed', at: 0, owner: 'a' }
  await journal.append([learnerClaimed, learnerClaimed, { ...published(0), epoch: epoch(0) }])
  const types = async () => (await saidOf(journal, ['learner'])).map(({ type }) => type)
  expect(await types()).toEqual(['learner.claimed', 'learner.claimed'])
  await journal.append([{ ...published(0), epoch: epoch(1) }])
  expect(await types()).toContain('weights.published')
})

const rethrow = (error: Error) => {
  throw error
}

test('what is shown of a run that runs leaves out what a replaced learner says, of before and of now', async () => {
  const journal = await open()
  await journal.append([claimed(3), evaluated(3, 0, 0.5), claimed(8), raised(3, 'of before')])
  const shown: Message[] = []
  const stop = await watchRun(journal, message => shown.push(message), rethrow)
  cleanups.push(stop)
  await journal.append([
    raised(3, 'of now'),
    evaluated(3, 1, 0.1),
    evaluated(8, 1, 0.9),
    ended(3, 'no'),
    raised(8, 'yes'),
  ])
  await until(() => shown.some(m => m.type === 'alarm.raised' && m.alarm === 'yes'))
  expect(shown.filter(m => m.type !== 'draws.claimed')).toMatchObject([
    { passAt1: 0.5 },
    { passAt1: 0.9 },
    { alarm: 'yes' },
  ])
})

test('what has no claim, of older logs and of other parts, is passed on', async () => {
  const heard = fence()
  const place = { topic: 'runs', partition: 0 }
  const { learnerEpoch: _, ...plain } = raised(0, 'tools-unserved')
  const said = [claimed(3), claimed(8), plain, raised(3, 'late'), claimed(3), raised(8, 'heard')]
  expect(said.map((message, offset) => heard({ ...place, offset, message }))).toEqual([
    ...[true, true, true],
    ...[false, false, true],
  ])
})

describe('replay', () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-fenced-'))
  const history = quickstartHistory()
  afterAll(() => rmSync(directory, { recursive: true, force: true }))
  beforeAll(async () => {
    const records = history.records.filter(({ message }) => message.type !== 'run.finished')
    const first = 1000
    const extra = [
      ...[claimed(first), claimed(first + 5), evaluated(first, 99, 0.125), raised(first, 'of-nobody')],
      ended(first, 'as nobody says'),
    ].map((message): NewRecord => {
      const { topic, key, headers, value } = encode(message, { run: history.run })
      return { topic, key, headers, value }
    })
    await saveHistory(directory, { ...history, records }, extra)
  })
  const replay = (...args: string[]) => troupe(['replay', ...args, '--bus', `lmdb:${directory}`]).done

  test('no command believes a replaced learner that the run is over, what a step came to, or that something is wrong', async () => {
    const verified = JSON.parse((await replay('verify', '--json')).stdout) as Record<string, unknown>
    expect(verified).toMatchObject({
      ok: true,
      outcome: null,
      ignored: { 'run.finished of a former learner': 1, 'evaluation.completed of a former learner': 1 },
    })
    expect((await replay('steps', '--json')).stdout).not.toContain('0.125')
    expect((await replay('alarms', '--json')).stdout).not.toContain('of-nobody')
  })

  test('follow shows what was said and that it does not count', async () => {
    const shown = (await replay('follow', '--json', '--at', 'runs:0:99999', '--type', 'run.finished')).stdout
    const offset = /offsets 0 to (\d+)/.exec((await replay('follow', '--at', 'runs:0:99999')).stderr)?.[1]
    expect(shown).toBe('')
    const lines = await replay('follow', '--json', '--at', `runs:0:${offset}`, '--type', 'run.finished')
    expect(JSON.parse(lines.stdout)).toMatchObject({ reason: 'as nobody says', counts: false })
  })
})
