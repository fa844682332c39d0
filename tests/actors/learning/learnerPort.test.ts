import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import type { Batch, LearnerRequest } from '../../../actors/learning/learner'
import { type LearnerPortOptions, learnerPort } from '../../../actors/learning/learnerPort'
import type { PartialCheckpoints, SavedCheckpoint, Trainer, TrainSequence } from '../../../backends/trainer/trainer'
import type { GenerateTurn } from '../../../messages/commands'
import type { Fact, GroupSelected, Metrics, StepStarted } from '../../../messages/facts'
import { epoch, policyVersion, runId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import { openJournal } from '../../../runtime/journal/openJournal'
import { createLog } from '../../../runtime/log'
import { completed, requested } from '../../support/facts'

const { trajectory, group } = requested('g', 0)
const started: StepStarted = {
  type: 'step.started',
  at: 0,
  step: 3,
  epoch: epoch(0),
  baseVersion: policyVersion(2),
  baseCheckpoint: 'step-000002',
  trajectories: [trajectory],
}
const selected = {
  type: 'group.selected',
  group,
  step: 3,
  kept: [{ member: 0, reward: 1, advantage: 0.5, penalty: 0 }],
} as unknown as GroupSelected
const batch = (step: number, loss: number | null) => ({
  started: { ...started, step },
  groups: [selected],
  places: new Map([[group, { partition: 0, offset: 0 }]]),
  metrics: loss === null ? null : { loss },
  rejected: false,
})
const request = (since: Extract<LearnerRequest, { kind: 'train' }>['since']): LearnerRequest => ({
  kind: 'train',
  epoch: epoch(0),
  batch: batch(3, null),
  version: policyVersion(2),
  checkpoint: { step: 1, name: 'step-000001' },
  since,
  saved: [],
})

interface Given extends Partial<LearnerPortOptions> {
  readonly write?: Write
  readonly sft?: Trainer['sft'] | undefined
  readonly sleep?: Trainer['sleep'] | undefined
  readonly wake?: Trainer['wake'] | undefined
  readonly lost?: Promise<Error>
}
type Write = (path: string) => Promise<SavedCheckpoint>

interface Calls {
  readonly loaded: string[]
  readonly batches: (readonly TrainSequence[])[]
  readonly saved: string[]
  /** Of what a reset begins anew, and how many steps came before it. */
  readonly resets: (readonly [number, string])[]
}

/**
 * A journal that holds a rollout whose last tool response was over its budget, and one of another group that sampled nothing;
 * a trainer that notes its calls.
 */
async function rig(
  step: (n: number, on?: PartialCheckpoints) => Promise<Readonly<Record<string, number>>>,
  grpo: Partial<LearnerPortOptions['grpo']> = {},
  { write = async () => ({ manifest: 'm', bytes: 9 }), sft, sleep, wake, lost, ...given }: Given = {},
) {
  const bus = openMemoryBus()
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  const turn = completed({ trajectory, turn: 0, attempt: 0 } as GenerateTurn, 'call')
  await journal.append([
    requested('empty', 0),
    requested('g', 0),
    turn,
    {
      type: 'context.appended',
      at: 0,
      trajectory,
      turn: 0,
      epoch: epoch(0),
      text: 'too long',
      tokens: new Int32Array(99),
    },
  ])
  let writing = async () => {}
  const calls: Calls = { loaded: [], batches: [], saved: [], resets: [] }
  const trainer = {
    step: async (sequences: readonly TrainSequence[], _grpo: object, on?: PartialCheckpoints) =>
      step(calls.batches.push(sequences), on),
    save: async (path: string) => {
      calls.saved.push(path)
      return { digest: 'd', bytes: 1, dtype: 'float32' }
    },
    checkpoint: async (path: string) => {
      calls.saved.push(path)
      return { saved: write(path) }
    },
    ...{ sft, sleep, wake, lost },
    load: async (path: string) => void calls.loaded.push(path),
    reset: async (what: object) => void calls.resets.push([calls.batches.length, JSON.stringify(what)]),
  } as unknown as Trainer
  const options: LearnerPortOptions = {
    trainer: async () => trainer,
    journal,
    directory: '/run',
    grpo: grpo as LearnerPortOptions['grpo'],
    checkpointEvery: 1,
    keepVersions: 3,
    fx: systemEffects,
    log: createLog('test', { level: 'silent' }),
    onWriting: ended => {
      writing = ended
    },
    ...given,
  }
  /** The facts that the port itself appended to the topic `learner`. */
  const appended = async () => {
    const { next } = await journal.offsets('learner', 0)
    const facts: Fact[] = []
    for await (const entries of journal.readTo('learner', 0, 0, next))
      facts.push(...entries.map(e => e.message as Fact))
    return facts
  }
  return { port: learnerPort(options), calls, appended, written: () => writing(), close: () => bus.close() }
}

test('a trainer that lost its state loads the newest checkpoint and goes through the batches since, then trains', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0.25, maxRssBytes: 7 }))
  const decision = await port(request([batch(2, 0.25)]), new AbortController().signal)
  expect(calls.loaded).toEqual(['/run/checkpoints/step-000001'])
  expect(calls.batches).toHaveLength(2)
  expect(decision!.facts.map(f => f.type)).toEqual(['weights.published', 'step.completed'])
  expect(decision!.facts.at(-1)).toMatchObject({ step: 3, version: 3, metrics: { loss: 0.25 } })
  expect(decision!.facts.at(-1)).not.toHaveProperty('metrics.maxRssBytes')
  await close()
})

test('a sequence ends with its last sampled token: what was over the budget is not trained through', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0 }))
  await port(request([]), new AbortController().signal)
  const [sequence] = calls.batches[0]!
  expect([...sequence!.tokens]).toEqual([1, 2, 3, 0, 1, 2, 3, 4])
  expect([...sequence!.mask]).toEqual([0, 0, 0, 1, 1, 1, 1, 1])
  expect(sequence).toMatchObject({ trajectory, advantage: 0.5, group: 0 })
  await close()
})

test('a rollout in which nothing was sampled is not given to the trainer; the others keep their advantages and groups', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0 }))
  const empty = requested('empty', 0)
  const both: Batch = {
    ...batch(3, null),
    started: { ...started, trajectories: [empty.trajectory, trajectory] },
    groups: [{ ...selected, group: empty.group, kept: [{ ...selected.kept[0]!, advantage: -1 }] }, selected],
    places: new Map([
      [empty.group, { partition: 0, offset: 0 }],
      [group, { partition: 0, offset: 0 }],
    ]),
  }
  await port({ ...request([]), batch: both } as LearnerRequest, new AbortController().signal)
  expect(calls.batches).toHaveLength(1)
  expect(calls.batches[0]).toMatchObject([{ trajectory, advantage: 0.5, group: 1 }])
  await close()
})

const refusing = (code: string) => async () => {
  const said = { message: 'for this reason', hint: 'do that' }
  throw new TroupeError(code, { boundary: 'trainer', retriable: false, ...said })
}

test.each(['trainer.not_finite', 'trainer.empty_batch', 'trainer.bad_sequence', 'trainer.context_exceeded'])(
  'a batch that the trainer answers with %s is rejected, with its reason and what to do, and publishes nothing',
  async code => {
    const { port, calls, close } = await rig(refusing(code))
    const decision = await port(request([]), new AbortController().signal)
    expect(decision!.facts).toMatchObject([{ type: 'step.rejected', step: 3, reason: 'for this reason; do that' }])
    expect(calls.saved).toEqual([])
    await close()
  },
)

test('what is wrong with the trainer and not with the batch rejects no step', async () => {
  for (const code of ['trainer.lost', 'trainer.bad_option', 'trainer.failed']) {
    const { port, close } = await rig(refusing(code))
    await expect(port(request([]), new AbortController().signal)).rejects.toMatchObject({ code })
    await close()
  }
})

test('a stage resets the trainer before its first step, and again when that step is computed again', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0.25 }), { klCoef: 0.001 })
  const reset = { optimizer: true, reference: true }
  await port(request([{ ...batch(2, 0.25), reset }]), new AbortController().signal)
  expect(calls.resets).toEqual([[0, JSON.stringify(reset)]])
  const asked = request([])
  await port(
    { ...asked, batch: { ...(asked as { batch: Batch }).batch, reset } } as LearnerRequest,
    new AbortController().signal,
  )
  expect(calls.resets[1]).toEqual([2, JSON.stringify(reset)])
  await close()
})

test('without a KL a stage takes no reference: nothing would be measured from it', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0.25 }))
  const only = { optimizer: false, reference: true }
  const { batch: asked } = request([]) as { batch: Batch }
  const now = { ...asked, reset: { optimizer: true, reference: true } }
  const since = [{ ...batch(2, 0.25), reset: only }]
  await port({ ...request(since), batch: now } as LearnerRequest, new AbortController().signal)
  expect(calls.resets).toEqual([[1, JSON.stringify({ optimizer: true, reference: false })]])
  await close()
})

const slow = new TroupeError('trainer.timeout', { boundary: 'trainer', retriable: true, message: 'took too long' })

test('the third step in a row that times out is final, though finished steps are computed again in between; a success begins anew', async () => {
  const outcomes: (() => Promise<Metrics>)[] = []
  const fine = async () => ({ loss: 0.25 })
  const late = async () => Promise.reject(slow)
  const { port, close } = await rig(async () => outcomes.shift()!())
  const tries = async (...given: readonly (() => Promise<Metrics>)[]) => {
    outcomes.push(...given)
    return port(request([batch(2, 0.25)]), new AbortController().signal).then(
      decision => decision!.facts.at(-1)!.type,
      error => error.code,
    )
  }
  // Each try first computes step 2 again, since the trainer lost its result.
  expect([await tries(fine, late), await tries(fine, late), await tries(fine, fine)]).toEqual([
    ...['trainer.timeout', 'trainer.timeout', 'step.completed'],
  ])
  const again: unknown[] = []
  for (let n = 0; n < 3; n++) again.push(await tries(fine, late))
  expect(again).toEqual(['trainer.timeout', 'trainer.timeout', 'trainer.failed_repeatedly'])
  await close()
})

test('a step is over before its checkpoint is complete, and the checkpoint is recorded when it is', async () => {
  let complete: (saved: SavedCheckpoint) => void = () => {}
  const write: Write = () =>
    new Promise(resolve => {
      complete = resolve
    })
  const { port, calls, appended, written, close } = await rig(async () => ({ loss: 0 }), {}, { write })
  const decision = await port(request([]), new AbortController().signal)
  expect(decision!.facts.map(f => f.type)).toEqual(['weights.published', 'step.completed'])
  expect(decision!.facts[0]).toMatchObject({ url: 'weights/v000003', dtype: 'float32' })
  expect(calls.saved).toEqual(['/run/weights/v000003', '/run/checkpoints/step-000003'])
  expect(await appended()).toEqual([])
  complete({ manifest: 'abc', bytes: 5 })
  await written()
  const said = { step: 3, version: 3, name: 'step-000003', digest: 'd', manifest: 'abc', bytes: 5 }
  expect(await appended()).toMatchObject([{ type: 'checkpoint.saved', ...said }])
  await close()
})

test("the checkpoint of the run's last step is awaited", async () => {
  const { port, close } = await rig(async () => ({ loss: 0 }), {}, { lastStep: 3 })
  const decision = await port(request([]), new AbortController().signal)
  expect(decision!.facts.map(f => f.type)).toEqual(['checkpoint.saved', 'weights.published', 'step.completed'])
  await close()
})

test('a checkpoint that could not be written is written again before the next step, which fails if that fails too', async () => {
  let full = true
  const write: Write = async () => {
    if (full) throw new TroupeError('trainer.failed', { boundary: 'trainer', retriable: false, message: 'disk full' })
    return { manifest: 'm', bytes: 1 }
  }
  const { port, calls, appended, written, close } = await rig(async () => ({ loss: 0 }), {}, { write })
  const signal = new AbortController().signal
  const fourth = { ...request([]), batch: batch(4, null), version: policyVersion(3) } as LearnerRequest
  await port(request([]), signal)
  await written()
  expect(await appended()).toEqual([])
  await expect(port(fourth, signal)).rejects.toMatchObject({ code: 'trainer.failed' })
  expect(calls.batches).toHaveLength(1)
  full = false
  await port(fourth, signal)
  await written()
  expect((await appended()).map(fact => 'step' in fact && fact.step)).toEqual([3, 4])
  await close()
})

test('a checkpoint that fails while the next step is trained is made up for by that step; the third failure ends the run', async () => {
  const disk = { isFull: true, fail: () => {} }
  const write: Write = () =>
    new Promise((resolve, reject) => {
      disk.fail = () =>
        disk.isFull
          ? reject(new TroupeError('trainer.failed', { boundary: 'trainer', retriable: false, message: 'disk full' }))
          : resolve({ manifest: 'm', bytes: 1 })
    })
  const step = async () => {
    disk.fail()
    return { loss: 0 }
  }
  const { port, appended, written, close } = await rig(step, {}, { write, checkpointEvery: 3 })
  const signal = new AbortController().signal
  const at = (number: number) =>
    ({ ...request([]), batch: batch(number, null), version: policyVersion(number - 1) }) as LearnerRequest
  for (const number of [3, 4]) await port(at(number), signal) // 3 is due; it fails while 4 is trained
  disk.isFull = false
  await port(at(5), signal)
  expect((await appended()).map(fact => 'step' in fact && fact.step)).toEqual([4])
  await port(at(6), signal)
  disk.isFull = true
  for (const number of [7, 8]) await port(at(number), signal)
  await expect(port(at(9), signal)).rejects.toMatchObject({ code: 'trainer.failed_repeatedly' })
  disk.fail()
  await written()
  await close()
})

test('a removed checkpoint is gone from the disk with the weights of its version, and the log says so', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-port-'))
  const [checkpoint, weights] = [join(directory, 'checkpoints/step-000001'), join(directory, 'weights/v000001')]
  for (const folder of [checkpoint, weights]) mkdirSync(join(folder, 'training'), { recursive: true })
  const { port, close } = await rig(async () => ({ loss: 0 }), {}, { directory })
  const kept = { step: 1, version: policyVersion(1), name: 'step-000001' }
  const asked = { kind: 'remove-checkpoint', epoch: epoch(0), checkpoint: kept, version: policyVersion(3) } as const
  const removed = [{ type: 'checkpoint.removed', step: 1, name: 'step-000001' }]
  // The weights are among the newest three versions, then no longer.
  expect((await port(asked, new AbortController().signal))!.facts).toMatchObject(removed)
  expect([existsSync(checkpoint), existsSync(weights)]).toEqual([false, true])
  expect((await port({ ...asked, version: policyVersion(4) }, new AbortController().signal))!.facts).toMatchObject(
    removed,
  )
  expect(existsSync(weights)).toBe(false)
  rmSync(directory, { recursive: true })
  await close()
})

test('a checkpoint that cannot be removed ends nothing: its removal is left to a request after the next step', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-port-'))
  const folder = join(directory, 'checkpoints')
  writeFileSync(folder, '') // nothing below it can be renamed: ENOTDIR
  const { port, close } = await rig(async () => ({ loss: 0 }), {}, { directory, checkpointEvery: 9 })
  const kept = { step: 1, version: policyVersion(1), name: 'step-000001' }
  const asked = { kind: 'remove-checkpoint', epoch: epoch(0), checkpoint: kept, version: policyVersion(3) } as const
  const stopping = new AbortController()
  const [first, second] = [port(asked, new AbortController().signal), port(asked, stopping.signal)]
  stopping.abort(new Error('the run ends'))
  await expect(second).rejects.toThrow('the run ends')
  let answer: unknown = 'none'
  void first.then(decision => (answer = decision))
  while (answer === 'none') await port(request([]), new AbortController().signal)
  expect(answer).toBeUndefined()
  rmSync(folder)
  mkdirSync(join(folder, kept.name), { recursive: true })
  expect((await port(asked, stopping.signal))!.facts).toMatchObject([{ type: 'checkpoint.removed' }])
  expect(existsSync(join(folder, kept.name))).toBe(false)
  rmSync(directory, { recursive: true })
  await close()
})

test('weights that a kept checkpoint shares stay when their version is old', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-port-'))
  const weights = join(directory, 'weights/v000000')
  mkdirSync(weights, { recursive: true })
  const { port, close } = await rig(async () => ({ loss: 0 }), {}, { directory })
  const saved = [{ step: 0, version: policyVersion(0), name: 'step-000000' }]
  await port({ ...request([]), saved } as LearnerRequest, new AbortController().signal)
  expect(existsSync(weights)).toBe(true)
  await port(request([]), new AbortController().signal)
  expect(existsSync(weights)).toBe(false)
  rmSync(directory, { recursive: true })
  await close()
})

test('a cold start records its checkpoints, goes on from one, and begins anew if that is of other demonstrations', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-port-'))
  const resumes: (string | undefined)[] = []
  const sft: Trainer['sft'] = async ({ examples }, _options, onProgress, on) => {
    onProgress(0.5, 2)
    resumes.push(on?.resume)
    if (on?.resume?.endsWith('old')) {
      throw new TroupeError('trainer.other_call', { boundary: 'trainer', retriable: false, message: 'others' })
    }
    on?.onSaved({ directory: `${on.prefix}000005`, updates: 5, manifest: 'm', bytes: 1 })
    return { loss: examples }
  }
  const coldStart = {
    options: {} as never,
    checkpointEvery: 5,
    async *examples() {
      yield { tokens: Int32Array.of(1, 2), mask: Uint8Array.of(0, 1) }
    },
  }
  const { port, appended, close } = await rig(async () => ({}), {}, { directory, coldStart, sft })
  const asked = { kind: 'cold-start', epoch: epoch(7) } as const
  const signal = new AbortController().signal
  const decision = await port(asked, signal)
  expect(decision!.facts.map(({ type }) => type)).toEqual(['stage.changed', 'checkpoint.saved', 'weights.published'])
  const said = { type: 'checkpoint.saved', step: 0, name: 'sft-e7-000005', updates: 5, epoch: 7 }
  const progress = { type: 'stage.progressed', stage: 'cold-start', done: 0.5, loss: 2, epoch: 7 }
  expect(await appended()).toMatchObject([progress, said])
  for (const name of ['sft-e3-000005', 'old']) {
    await port({ ...asked, resume: { step: 0, version: null, name } }, signal)
  }
  expect(resumes.map(path => path && basename(path))).toEqual([undefined, 'sft-e3-000005', 'old', undefined])
  rmSync(directory, { recursive: true })
  await close()
})

const refusal = (code: string) => new TroupeError(code, { boundary: 'trainer', retriable: false, message: code })
const part = (step: number) => ({ step, version: null, name: `step-00000${step}-u000002` })
const train = (since: Parameters<typeof request>[0], partial: object = {}) =>
  ({ ...request(since), ...partial }) as LearnerRequest

test('a step records its checkpoints, and goes on from one without loading the state before it', async () => {
  const asked: (PartialCheckpoints | undefined)[] = []
  const step = async (_n: number, on?: PartialCheckpoints) => {
    asked.push(on)
    on?.onSaved({ directory: `${on.prefix}000004`, updates: 4, manifest: 'm', bytes: 1 })
    return { loss: 1 }
  }
  const { port, calls, appended, written, close } = await rig(step, {}, { innerCheckpointEvery: 4, directory: '/run' })
  const signal = new AbortController().signal
  await port({ ...(train([batch(2, 1)], { partial: part(3) }) as object), epoch: epoch(7) } as LearnerRequest, signal)
  await written()
  expect(calls.loaded).toEqual([])
  expect(asked).toMatchObject([
    {
      prefix: '/run/checkpoints/step-000003-e7-u',
      every: 4,
      owner: '3/0',
      resume: '/run/checkpoints/step-000003-u000002',
    },
  ])
  expect((await appended())[0]).toMatchObject({
    type: 'checkpoint.saved',
    step: 3,
    name: 'step-000003-e7-u000004',
    updates: 4,
  })
  await close()
})

test('the third failure in a row of a step is final, unless each got further: a checkpoint begins the count anew', async () => {
  const lost = new TroupeError('trainer.lost', { boundary: 'trainer', retriable: true, message: 'gone' })
  let getsFurther = true
  const { port, close } = await rig(
    async (_n, on) => {
      if (getsFurther) on?.onSaved({ directory: `${on.prefix}000004`, updates: 4, manifest: 'm', bytes: 1 })
      await new Promise(resolve => setTimeout(resolve, 20)) // until the checkpoint is in the log
      throw lost
    },
    {},
    { innerCheckpointEvery: 4, directory: '/run' },
  )
  const tried = () => port(train([], { partial: part(3) }), new AbortController().signal).catch(error => error.code)
  const codes: string[] = []
  for (let i = 0; i < 5; i++) codes.push(await tried())
  getsFurther = false
  for (let i = 0; i < 2; i++) codes.push(await tried())
  expect(codes).toEqual([...Array(6).fill('trainer.lost'), 'trainer.failed_repeatedly'])
  await close()
})

test('a finished step that a trainer lost goes on from its own checkpoint, too, and the next one begins', async () => {
  const resumes: (string | undefined)[] = []
  const step = async (_n: number, on?: PartialCheckpoints) => {
    resumes.push(on?.resume && basename(on.resume))
    return { loss: 1 }
  }
  const { port, calls, close } = await rig(step)
  const since = [batch(1, 1), batch(2, 1)]
  await port(train(since, { partial: part(2) }), new AbortController().signal)
  expect([calls.loaded, resumes]).toEqual([[], ['step-000002-u000002', undefined]])
  await close()
})

test('a step whose checkpoint is of another call begins anew, from the checkpoint before it', async () => {
  const resumes: (string | undefined)[] = []
  const step = async (_n: number, on?: PartialCheckpoints) => {
    resumes.push(on?.resume && basename(on.resume))
    if (on?.resume !== undefined) throw refusal('trainer.other_call')
    return { loss: 1 }
  }
  const { port, calls, close } = await rig(step)
  const decision = await port(train([batch(2, 1)], { partial: part(3) }), new AbortController().signal)
  expect(decision!.facts.at(-1)).toMatchObject({ type: 'step.completed', step: 3 })
  expect(calls.loaded).toEqual(['/run/checkpoints/step-000001'])
  expect(resumes).toEqual(['step-000003-u000002', undefined, undefined])
  await close()
})

test('after a step that went on and is rejected, the next one begins from a checkpoint: the state before it is gone', async () => {
  const { port, calls, close } = await rig(async (_n, on) => {
    if (on?.resume !== undefined) throw refusal('trainer.not_finite')
    return { loss: 1 }
  })
  const signal = new AbortController().signal
  const decision = await port(train([], { partial: part(3) }), signal)
  expect(decision!.facts).toMatchObject([{ type: 'step.rejected', step: 3 }])
  const next = train([], { batch: batch(4, null) })
  await port(next, signal)
  expect(calls.loaded).toEqual(['/run/checkpoints/step-000001'])
  await close()
})

test('a trainer that cannot free its memory after a step fails the step, unless it has ended', async () => {
  const stuck = new TroupeError('trainer.failed', { boundary: 'trainer', retriable: false, message: 'cannot move' })
  const sleep = async () => Promise.reject(stuck)
  const outcome = async (lost: Promise<Error>, step = async () => ({ loss: 0 })) => {
    const { port, close } = await rig(step, {}, { sleep, lost, takesTurns: true })
    const said = await port(request([]), new AbortController().signal).then(
      decision => decision!.facts.at(-1)!.type,
      error => error.message,
    )
    await close()
    return said
  }
  const [alive, ended] = [new Promise<Error>(() => {}), Promise.resolve(new Error('killed'))]
  expect(await outcome(alive)).toBe('cannot move')
  expect(await outcome(ended)).toBe('step.completed')
  expect(await outcome(alive, async () => Promise.reject(new Error('no step')))).toBe('no step')
})

test('a stop ends a step that waits for the trainer or its memory, and waits for one that is being trained', async () => {
  const stopping = new AbortController()
  const never = () => new Promise<never>(() => {})
  const waits = await rig(async () => ({ loss: 0 }), {}, { trainer: never })
  const sleeps = await rig(async () => ({ loss: 0 }), {}, { takesTurns: true, wake: never })
  const trains = await rig(async () => {
    stopping.abort(new Error('the run ends'))
    return { loss: 0 }
  })
  const ends = [waits, sleeps].map(({ port }) => expect(port(request([]), stopping.signal)).rejects.toThrow('run ends'))
  const decision = await trains.port(request([]), stopping.signal)
  await Promise.all(ends)
  expect(decision!.facts.at(-1)).toMatchObject({ type: 'step.completed', step: 3 })
  for (const { close } of [waits, sleeps, trains]) await close()
})
