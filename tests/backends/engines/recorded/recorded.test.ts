/** The recorded engine: what every engine promises, which of several answers is given, and what is said where there is none. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openRecording, RecordedTurns, recordedEngine } from '../../../../backends/engines/recorded/recorded'
import { fileEngineOverrides } from '../../../../config/fileAddress'
import type { Message } from '../../../../messages'
import { engineId, epoch, groupId, policyVersion, runId, trajectoryId } from '../../../../messages/ids'
import { memoryBlobs } from '../../../../runtime/bus/blobs'
import { openBus } from '../../../../runtime/bus/open'
import type { TroupeError } from '../../../../runtime/errors'
import { openJournal } from '../../../../runtime/journal/openJournal'
import { createLog } from '../../../../runtime/log'
import { runDirectory } from '../../../../runtime/runDirectory'
import { hashForward, textOf, vocabulary, weightsOf, writeWeights } from '../../../support/hashModel'
import { answered, asked, claim, prompted, recordedJournal, sampled } from '../../../support/recordedLog'
import { refused } from '../../../support/refusal'
import { engineContract, requestOn } from '../contract'

const folder = mkdtempSync(join(tmpdir(), 'troupe-recorded-'))
const weights = writeWeights(join(folder, 'weights'), 'one')
const otherWeights = writeWeights(join(folder, 'other'), 'two')
const context = Int32Array.from({ length: 150 }, (_, i) => (i * 37 + 11) % vocabulary)
const decode = async (tokens: Int32Array) => textOf(tokens)
const log = createLog('test', { level: 'silent' })
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const at = (member: number) => trajectoryId(groupId('g'), member)
const sizes = { kvTokens: 65_536, blockTokens: 16, maxSequences: 8, contextTokens: 1024, vocabulary }

async function engineOf(facts: readonly Message[], speed?: number) {
  const turns = await RecordedTurns.of(await recordedJournal([claim(), ...facts]))
  return recordedEngine({
    id: engineId('recorded-0'),
    turns,
    decode,
    ...sizes,
    ...(speed === undefined ? {} : { speed }),
  })
}

/** A whole rollout of one turn. */
function turnOf(
  member: number,
  prompt: Int32Array,
  length: number,
  temperature = 1,
  seed = member,
): readonly Message[] {
  const trajectory = at(member)
  const answer = sampled(weightsOf(weights), prompt, length, temperature, seed)
  return [prompted(trajectory, prompt), asked(trajectory, prompt, { seed }), answered(trajectory, answer)]
}

// The contexts that the contract asks about, at the temperatures that it asks for.
const contractFacts = () => [
  ...turnOf(0, context, 400),
  ...[1, 0.6, 1.5, 1, 1, 1].flatMap((temperature, i) => turnOf(i + 1, context.slice(0, 20 + 17 * i), 40, temperature)),
]

engineContract({
  name: 'recorded',
  weightsChange: 'nothing',
  tolerance: 1e-5,
  timeoutMs: 60_000,
  forward: hashForward,
  async start() {
    const engine = await engineOf(contractFacts())
    return { engine, weights, otherWeights, context, decode, stop: () => engine.close() }
  },
})

const ints = (...tokens: readonly number[]) => Int32Array.from(tokens)
const says = (tokens: Int32Array) => ({ tokens, logprobs: new Float32Array(tokens.length).fill(-0.25) })
const prompt = ints(1, 2, 3)

describe('which recorded turn answers', () => {
  /** Three members on one prompt, seeds 10 to 12, each with one token of its own. */
  const members = [0, 1, 2].flatMap(member => [
    prompted(at(member), prompt),
    asked(at(member), prompt, { seed: 10 + member }),
    answered(at(member), says(ints(100 + member)), { finish: 'stop' }),
  ])
  const said = async (trajectory: ReturnType<typeof at>, seed: number) =>
    (await (await engineOf(members)).generate(requestOn(prompt, { trajectory, seed, maxTokens: 400 }))).tokens[0]

  test('of several answers to one context: the seed counts most, then the trajectory, then the seed as a number', async () => {
    expect(await said(at(2), 12)).toBe(102)
    expect(await said(at(0), 12)).toBe(102)
    expect(await said(at(1), 999)).toBe(101)
    expect(await said(at(9), 999)).toBe(100)
    expect(await said(at(9), 1000)).toBe(101)
  })

  test('a turn that was interrupted and asked again is one turn, asked with the context of its first attempt', async () => {
    const [first, rest, whole] = [ints(5, 6), ints(7, 8, 9), ints(5, 6, 7, 8, 9)]
    const engine = await engineOf([
      prompted(at(0), prompt),
      asked(at(0), prompt),
      { ...answered(at(0), says(first)), type: 'turn.interrupted', reason: 'aborted', error: '' } as never,
      asked(at(0), ints(...prompt, ...first), { attempt: 1 }),
      // An answer to the attempt before counts no more.
      answered(at(0), says(ints(44)), { finish: 'stop' }),
      answered(at(0), says(rest), {
        ...{ attempt: 1, finish: 'stop', text: textOf(whole) },
        segments: [{ policyVersion: policyVersion(2), start: 0, end: 3 }],
      }),
    ])
    const ask = { maxTokens: 400, sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [9] } }
    expect(await engine.generate(requestOn(prompt, ask))).toMatchObject({
      ...{ tokens: whole, text: textOf(whole), finish: 'stop' },
      segments: [
        { policyVersion: 1, start: 0, end: 2 },
        { policyVersion: 2, start: 2, end: 5 },
      ],
    })
    // Interrupted elsewhere: it goes on from there.
    const resumed = requestOn(ints(...prompt, 5, 6, 7), { ...ask, resumedTokens: 3 })
    expect(await engine.generate(resumed)).toMatchObject({
      ...{ tokens: ints(8, 9), text: textOf(whole), segments: [{ policyVersion: 2, start: 0, end: 2 }] },
    })
    const other = await refused(engine.generate(requestOn(ints(...prompt, 5, 66), { ...ask, resumedTokens: 2 })))
    expect(other).toMatchObject({ code: 'engine.not_recorded', message: expect.stringMatching(/from token 1 on/) })
  })

  test('decisions of a former owner and turns that were never completed answer nothing', async () => {
    const engine = await engineOf([
      ...turnOf(1, ints(9), 3),
      prompted(at(0), prompt),
      claim('b'),
      asked(at(0), prompt, { epoch: epoch(0) }),
      answered(at(0), says(ints(4)), { finish: 'stop' }),
    ])
    expect((await refused(engine.generate(requestOn(prompt)))).code).toBe('engine.not_recorded')
  })
})

describe('what was not recorded', () => {
  const after = ints(30, 31)
  const facts: readonly Message[] = [
    prompted(at(0), prompt),
    asked(at(0), prompt),
    answered(at(0), says(ints(10, 11, 12)), { finish: 'stop' }),
    { type: 'context.appended', at: 0, trajectory: at(0), turn: 0, epoch: epoch(0), text: '', tokens: after },
    asked(at(0), ints(1, 2, 3, 10, 11, 12, 30, 31), { turn: 1 }),
    answered(at(0), says(ints(20, 21)), { turn: 1 }),
    prompted(at(1), ints(7, 7)),
    asked(at(1), ints(7, 7)),
  ]
  const message = async (tokens: Int32Array, change: Partial<Parameters<typeof requestOn>[1]> = {}) => {
    const engine = await engineOf(facts)
    const error = await refused(
      engine.generate(requestOn(tokens, { trajectory: at(0), turn: 1, maxTokens: 2, ...change })),
    )
    expect(error).toMatchObject({ code: 'engine.not_recorded', retriable: false, boundary: 'engine' })
    expect(error.hint).toBeTruthy()
    return error.message
  }

  test('is said with the trajectory and turn, and where its context departs from the nearest recorded one', async () => {
    expect(await message(ints(1, 2, 3, 10, 11, 12, 30, 99))).toBe(
      "g/0 turn 1, asked with a context of 8 tokens, is not recorded in run 'recorded': " +
        'the nearest recorded is g/0, which departs at token 7, in what followed turn 0: recorded 31, asked 99',
    )
    expect(await message(ints(1, 5))).toMatch(/departs at token 1, in its prompt: recorded 2, asked 5/)
    expect(await message(ints(1, 2, 3, 10, 4))).toMatch(
      /at token 4, in what was sampled in turn 0: recorded 11, asked 4/,
    )
    expect(await message(ints(1, 2))).toMatch(/says the same so far .* inside its prompt/)
    expect(await message(ints(1, 2, 3, 10, 11, 12, 30, 31, 20, 21, 5))).toMatch(
      /agrees for 10 tokens and ends there, after turn 1/,
    )
    expect(await message(ints(7, 7), { trajectory: at(1) })).toMatch(
      /turn 0 was asked with this context and never completed/,
    )
    // Of a trajectory that is not there the nearest of its group.
    expect(await message(ints(1, 2, 4), { trajectory: at(8) })).toMatch(
      /^g\/8 turn 1.*nearest recorded is g\/0, .* at token 2/,
    )
    expect(await message(ints(1, 2, 3, 10, 11, 12, 30, 31), { maxTokens: 3 })).toMatch(
      /recorded with only 2 tokens, but 3 more/,
    )
  })

  test('a turn that is cut short by the request ends there, and one that was cut off by its own budget ends as it did', async () => {
    const engine = await engineOf(facts)
    const whole = ints(1, 2, 3, 10, 11, 12, 30, 31)
    expect(await engine.generate(requestOn(whole, { maxTokens: 1 }))).toMatchObject({
      tokens: ints(20),
      finish: 'length',
      text: '<20>',
    })
    expect(await engine.generate(requestOn(whole, { maxTokens: 2 }))).toMatchObject({
      tokens: ints(20, 21),
      finish: 'length',
    })
  })
})

test('at a speed, tokens come as they came then; an abort in between keeps those that had come', async () => {
  const timing = { queuedAt: 0, startedAt: 0, firstTokenAt: 1000, endedAt: 100_000 }
  const facts = [
    prompted(at(0), prompt),
    asked(at(0), prompt),
    answered(at(0), says(new Int32Array(100).fill(5)), { timing }),
  ]
  const engine = await engineOf(facts, 10)
  const request = requestOn(prompt, { maxTokens: 100 })
  let seen = 0
  const answer = engine.stream(request, tokens => {
    seen += tokens.length
    if (seen >= 2) void engine.abort(request.requestId)
  })
  const { finish, tokens, timing: lived } = await answer
  expect(finish).toBe('aborted')
  expect(tokens).toHaveLength(seen)
  expect(seen).toBeLessThan(100)
  // 1000 ms to the first token and 1000 ms more to the second, ten times faster.
  expect(lived.firstTokenAt - lived.queuedAt).toBeGreaterThanOrEqual(99)
  expect(lived.endedAt - lived.queuedAt).toBeGreaterThanOrEqual(199)
})

test('at a speed, who waits for the whole turn hears when its first token came', async () => {
  const timing = { queuedAt: 0, startedAt: 0, firstTokenAt: 1000, endedAt: 3000 }
  const facts = [
    prompted(at(0), prompt),
    asked(at(0), prompt),
    answered(at(0), says(new Int32Array(11).fill(5)), { timing }),
  ]
  const engine = await engineOf(facts, 10)
  const { timing: lived } = await engine.generate(requestOn(prompt, { maxTokens: 11 }))
  expect(lived.firstTokenAt - lived.queuedAt).toBe(100)
  expect(lived.endedAt - lived.queuedAt).toBeGreaterThanOrEqual(299)
})

describe('a recording that is none is refused at the start', () => {
  const of = (text: string, own?: Parameters<typeof openRecording>[1]) => openRecording(text, own, log)
  const ownOn = async (address: string, name = 'mine') => ({
    ...{ run: runId(name), bus: await openBus(address), blobs: memoryBlobs() },
    directory: runDirectory(folder, runId(name)).root,
  })

  test('a run that is not there is named, with those that are', async () => {
    const { log: place } = runDirectory(folder, runId('there'))
    const bus = await openBus(`lmdb:${place}`)
    const journal = openJournal(bus, memoryBlobs(), runId('there'))
    await journal.create(1)
    await journal.append([claim()])
    await bus.close()
    expect(await refused(of(`gone@lmdb:${folder}`))).toMatchObject({
      code: 'engine.no_recording',
      message: expect.stringMatching(/no recorded run 'gone' in .*, which holds there/),
    })
    expect((await refused(of(`gone@lmdb:${folder}/nowhere`))).message).toMatch(/which holds no run/)
    // A log without a turn.
    const recording = await of(`there@lmdb:${folder}`)
    const turns = await RecordedTurns.of(recording.journal)
    expect(() => recordedEngine({ id: engineId('e'), turns, decode, ...sizes })).toThrow(
      /'there' holds no turn that was completed/,
    )
    await recording.close()
    const beside = await of('there', await ownOn(`lmdb:${runDirectory(folder, runId('mine')).log}`))
    await beside.close()
  })

  test('a memory bus holds no other run, and a run cannot answer from itself', async () => {
    const own = await ownOn('memory:')
    expect((await refused(of('other', own))).message).toMatch(/memory bus, which holds no other run/)
    expect((await refused(of('mine', own))).message).toMatch(/itself/)
    expect((await refused(of('other'))).hint).toMatch(/RUN@lmdb:DIR/)
  })

  test('what is no address is refused with what can be written', () => {
    const said = (...addresses: readonly string[]) => {
      try {
        return fileEngineOverrides(addresses)
      } catch (thrown) {
        const { code, message, hint } = thrown as TroupeError
        return `${code} ${message} ${hint}`
      }
    }
    expect(said('vllm:http://a:1')).toBeUndefined()
    const expected = ['engine.kind=recorded', 'engine.launch=null', 'engine.urls=[]', 'engine.recording="r1"']
    expect(said('recorded:r1')).toEqual(expected)
    expect(said('recorded:r1@lmdb:a b')).toContain(`engine.recording="r1@lmdb:${join(process.cwd(), 'a b')}"`)
    expect(said('recorded:r1@kafka://a:1,b:2')).toContain('engine.recording="r1@kafka://a:1,b:2"')
    expect(said('simulated:e.json')).toContain(`engine.modelFile="${join(process.cwd(), 'e.json')}"`)
    expect(said('recorded:')).toMatch(/config\.bad_engine .*contains no valid run name.*recorded:RUN@lmdb:DIR/)
    expect(said('recorded:a/b')).toMatch(/contains no valid run name/)
    expect(said('recorded:r1@memory:')).toMatch(/"memory:" is not a bus that keeps logs/)
    expect(said('simulated:')).toMatch(/contains no file name/)
    expect(said('recorded:a', 'recorded:b')).toMatch(/one address for all.*engine\.count=N/)
    expect(said('local', 'recorded:b')).toMatch(/one address for all/)
  })
})
