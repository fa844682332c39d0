/**
 * What every engine that generates promises, as tests: one joins by calling `engineContract` with a way to start it.
 *
 * in   a driver: an engine over a real model, and other weights for it        out  one describe block
 * Invariant: nothing here knows what stands behind the engine; what one kind alone promises is in its own test file.
 * Logprobs are held against a forward pass of transformers, so a cache that outlives its weights shows.
 */

import type { Engine, GenerateRequest, Generation } from '../../../backends/engines/engine'
import { groupId, policyVersion, trajectoryId } from '../../../messages/ids'
import { type Forward, farthest, forwardReference } from '../../support/forward'
import { refused } from '../../support/refusal'
import { until } from '../../support/until'

interface StreamingEngine extends Engine {
  stream(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
}

interface EngineUnderTest {
  readonly engine: StreamingEngine
  /** The weights that it began with, and others of the same shape. */
  readonly weights: string
  readonly otherWeights: string
  /** A context that some of the tests begin with, of at least 130 tokens. */
  readonly context: Int32Array
  decode(tokens: Int32Array): Promise<string>
  stop(): Promise<void>
}

export interface EngineDriver {
  readonly name: string
  /** How far a logprob may be from the forward pass, nats. */
  readonly tolerance: number
  /** How long an update of weights and a few generations may take. */
  readonly timeoutMs: number
  start(): Promise<EngineUnderTest>
  /** Text in and text out: what needs the sampled ids, their logprobs or new weights is not promised. */
  readonly textOnly?: boolean
  /**
   * What new weights change. Default `sampling`: each token has the logprob of the weights that it names. `names`: the versions
   * that tokens name, and nothing of how they are drawn. `nothing`: the answers are of policies that cannot be changed.
   */
  readonly weightsChange?: 'sampling' | 'names' | 'nothing'
  /** log p of what followed, computed anew. Default: a forward pass of transformers. */
  readonly forward?: Forward
}

export const plainSampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] as number[] }

let asked = 0
export function requestOn(context: Int32Array, changes: Partial<GenerateRequest> = {}): GenerateRequest {
  const n = asked++
  return {
    requestId: `contract-${n}`,
    trajectory: trajectoryId(groupId('contract'), n),
    context,
    resumedTokens: 0,
    maxTokens: 24,
    sampling: plainSampling,
    seed: n,
    priority: n,
    keep: false,
    ...changes,
  }
}

const joined = (...parts: readonly Int32Array[]) => Int32Array.from(parts.flatMap(part => [...part]))

export function engineContract(driver: EngineDriver): void {
  describe(`the ${driver.name} engine`, () => {
    let under: EngineUnderTest
    let engine: StreamingEngine
    let context: Int32Array
    /** The version that the engine samples under: every test that changes it goes on from here. */
    let version = 0
    const reference = forwardReference()
    const { tolerance, timeoutMs, textOnly = false, forward = reference.forward, weightsChange = 'sampling' } = driver
    const trainedTest = (title: string, run: () => Promise<void>, limitMs: number) => {
      if (!textOnly) test(title, run, limitMs)
    }
    const changedTest = (change: typeof weightsChange, title: string, run: () => Promise<void>) => {
      if (change === weightsChange) trainedTest(title, run, timeoutMs)
    }

    const update = async (directory: string) => {
      version++
      await engine.updateWeights({ version: policyVersion(version), directory, digest: '', keepKv: false })
    }
    const versions = (answer: Generation) => answer.segments.map(segment => segment.policyVersion)
    const expectAgreement = async (
      directory: string,
      answers: readonly Generation[],
      of: readonly GenerateRequest[],
    ) => {
      const continued = answers.map(({ tokens }, i) => {
        const { context, sampling } = of[i]!
        return { context, tokens, temperature: sampling.temperature }
      })
      const expected = await forward(directory, continued)
      const distances = expected.map((each, i) => farthest(each, answers[i]!.logprobs))
      expect(Math.max(...distances)).toBeLessThan(tolerance)
    }

    beforeAll(async () => {
      under = await driver.start()
      engine = under.engine
      context = under.context
      if (!textOnly) await update(under.weights)
      else
        await engine.updateWeights({ version: policyVersion(0), directory: under.weights, digest: '', keepKv: false })
    }, 400_000)
    afterAll(async () => {
      await reference.close()
      await under?.stop()
    }, 60_000)

    test('it says how much it holds and how long a context may be', () => {
      const { kvTokens, blockTokens, maxSequences, contextTokens, vocabulary, trainable } = engine.capabilities
      for (const size of [kvTokens, blockTokens, maxSequences, contextTokens, vocabulary])
        expect(size).toBeGreaterThan(0)
      expect(trainable).toBe(!textOnly && weightsChange !== 'nothing')
      expect([-1, 0, 1]).toContain(engine.capabilities.prioritySign)
    })

    trainedTest(
      'logprobs are those of a forward pass at the temperature that was sampled with, alone and in a crowd',
      async () => {
        const requests = [1, 0.6, 1.5, 1, 1, 1].map((temperature, i) =>
          requestOn(context.slice(0, 20 + 17 * i), { sampling: { ...plainSampling, temperature } }),
        )
        const answers = [await engine.generate(requests[0]!)]
        answers.push(...(await Promise.all(requests.slice(1).map(each => engine.generate(each)))))
        for (const { tokens, logprobs, finish, segments, text } of answers) {
          expect(finish).toBe('length')
          expect(tokens).toHaveLength(24)
          expect(logprobs).toHaveLength(24)
          expect(segments).toEqual([{ policyVersion: version, start: 0, end: 24 }])
          expect(text).toBe(await under.decode(tokens))
        }
        expect(new Set(answers.map(({ tokens }) => tokens.join())).size).toBeGreaterThan(1)
        await expectAgreement(under.weights, answers, requests)
      },
      timeoutMs,
    )

    test(
      'a turn ends with the stop token, which is its last token and in its text',
      async () => {
        const greedy = { ...plainSampling, temperature: 0 }
        const whole = await engine.generate(requestOn(context, { sampling: greedy }))
        const stop = whole.tokens[5]!
        const first = whole.tokens.indexOf(stop)
        const stopped = await engine.generate(requestOn(context, { sampling: { ...greedy, stopTokens: [stop] } }))
        expect(stopped.finish).toBe('stop')
        expect(stopped.tokens).toEqual(whole.tokens.slice(0, first + 1))
        expect(stopped.logprobs).toHaveLength(first + 1)
        expect(stopped.text).toBe(await under.decode(stopped.tokens))
      },
      timeoutMs,
    )

    test(
      'an aborted turn gives the tokens that it had, and the text of a resumed one is that of all its tokens',
      async () => {
        let part: Generation | undefined
        const seen: Int32Array[] = []
        // On a busy machine an abort may come after the last token: then once more.
        for (let attempt = 0; attempt < 20 && part?.finish !== 'aborted'; attempt++) {
          const aborter = new AbortController()
          seen.length = 0
          const onTokens = (tokens: Int32Array) => {
            seen.push(tokens)
            aborter.abort()
          }
          part = await engine.stream(requestOn(context, { maxTokens: 80 }), onTokens, aborter.signal)
        }
        expect(part?.finish).toBe('aborted')
        const { tokens, logprobs } = part!
        expect(tokens.length).toBeGreaterThanOrEqual(1)
        expect(tokens.length).toBeLessThan(80)
        expect(logprobs).toHaveLength(tokens.length)
        expect(joined(...seen)).toEqual(tokens.slice(0, joined(...seen).length))
        expect(part!.segments.at(-1)?.end).toBe(tokens.length)
        const on = requestOn(joined(context, tokens), { resumedTokens: tokens.length, maxTokens: 4 })
        const rest = await engine.generate(on)
        expect(rest.tokens).toHaveLength(4)
        expect(rest.text).toBe(await under.decode(joined(tokens, rest.tokens)))
        await until(async () => (await engine.status()).running === 0, 30_000)
      },
      timeoutMs,
    )

    test('`abort` ends a request by its name, and what is unknown is no error', async () => {
      const request = requestOn(context, { maxTokens: 80 })
      const answer = engine.stream(request, () => void engine.abort(request.requestId))
      expect(['aborted', 'length']).toContain((await answer).finish)
      await engine.abort('nobody')
      await engine.release(request.trajectory)
    }, 60_000)

    test('what does not fit is refused with a code, and the engine goes on', async () => {
      const { contextTokens, vocabulary } = engine.capabilities
      const long = await refused(engine.generate(requestOn(new Int32Array(contextTokens))))
      expect(long).toMatchObject({ code: 'engine.context_exceeded', retriable: false, boundary: 'engine' })
      expect((await refused(engine.generate(requestOn(Int32Array.of(vocabulary))))).code).toBe('engine.bad_request')
      const request = requestOn(context, { maxTokens: 40 })
      const running = engine.generate(request)
      expect((await refused(engine.generate(request))).code).toBe('engine.bad_request')
      expect((await running).tokens).toHaveLength(40)
    }, 60_000)

    test('the status counts what was generated, and what runs', async () => {
      const before = await engine.status()
      let during = before
      const request = requestOn(context, { maxTokens: 60 })
      await engine.stream(request, () => {
        if (during === before) void engine.status().then(seen => (during = seen))
      })
      await until(async () => (await engine.status()).generatedTokens - before.generatedTokens === 60)
      const after = await engine.status()
      expect(after.busyMs).toBeGreaterThan(before.busyMs)
      expect(during.kvTokens).toBe(engine.capabilities.kvTokens)
      expect(after).toMatchObject({ type: 'engine.status', engine: engine.id, running: 0, waiting: 0, version })
    }, 60_000)

    changedTest(
      'sampling',
      'after new weights a prefix that was cached is computed anew: its logprobs are those of a forward pass of them',
      async () => {
        const first = requestOn(context, { keep: true })
        const before = await engine.generate(first)
        expect(versions(before)).toEqual([version])
        await update(under.otherWeights)
        const on = requestOn(joined(context, before.tokens), { trajectory: first.trajectory, keep: true })
        const after = await engine.generate(on)
        expect(versions(after)).toEqual([version])
        await expectAgreement(under.otherWeights, [after], [on])
        const [old] = await forward(under.weights, [{ ...on, tokens: after.tokens, temperature: 1 }])
        expect(farthest(old!, after.logprobs)).toBeGreaterThan(10 * tolerance) // else nothing was shown
        await update(under.weights)
        const again = requestOn(on.context, { trajectory: first.trajectory })
        await expectAgreement(under.weights, [await engine.generate(again)], [again])
        await engine.release(first.trajectory)
      },
    )

    changedTest(
      'sampling',
      'new weights in the middle of a turn split its segments, and each token has the logprob of the weights it names',
      async () => {
        const room = Math.min(engine.capabilities.contextTokens - context.length - 1, 300)
        let answer: Generation | undefined
        let request = requestOn(context, { maxTokens: room })
        for (let attempt = 0; attempt < 10 && answer?.segments.length !== 2; attempt++) {
          if (attempt > 0) await update(under.weights) // it came too late: once more
          request = requestOn(context, { maxTokens: room })
          let updated: Promise<void> | undefined
          answer = await engine.stream(request, () => {
            updated ??= update(under.otherWeights)
          })
          await updated
        }
        const { tokens, logprobs, segments } = answer!
        expect(segments).toHaveLength(2)
        const [old, fresh] = segments
        expect(old).toEqual({ policyVersion: version - 1, start: 0, end: fresh!.start })
        expect(fresh).toEqual({ policyVersion: version, start: old!.end, end: tokens.length })
        const all = { context: request.context, tokens, temperature: 1 }
        const [byOld] = await forward(under.weights, [all])
        const [byNew] = await forward(under.otherWeights, [all])
        expect(farthest(byOld!.slice(0, old!.end), logprobs.slice(0, old!.end))).toBeLessThan(tolerance)
        expect(farthest(byNew!.slice(fresh!.start), logprobs.slice(fresh!.start))).toBeLessThan(tolerance)
        expect(farthest(byOld!, logprobs)).toBeGreaterThan(10 * tolerance)
        await update(under.weights)
      },
    )

    changedTest('sampling', 'weights that are not there change nothing', async () => {
      const nowhere = { version: policyVersion(version + 1), directory: '/nowhere/at/all', digest: '', keepKv: false }
      await refused(engine.updateWeights(nowhere))
      const wrong = { ...nowhere, directory: under.otherWeights, digest: 'f'.repeat(64) }
      expect((await refused(engine.updateWeights(wrong))).message).toMatch(/digest/)
      const request = requestOn(context)
      const answer = await engine.generate(request)
      expect(versions(answer)).toEqual([version])
      await expectAgreement(under.weights, [answer], [request])
    })

    changedTest('names', 'new weights are named by what is sampled after them, which is drawn as before', async () => {
      const request = requestOn(context)
      const before = await engine.generate(request)
      await update(under.otherWeights)
      const after = await engine.generate({ ...request, requestId: `${request.requestId}-again` })
      expect(versions(before)).toEqual([version - 1])
      expect(versions(after)).toEqual([version])
      expect(after.tokens).toEqual(before.tokens)
      await expectAgreement(under.weights, [before, after], [request, request])
    })

    changedTest(
      'names',
      'new weights in the middle of a turn split its segments, and change no token of it',
      async () => {
        const request = requestOn(context, { maxTokens: 300 })
        let updated: Promise<void> | undefined
        const answer = await engine.stream(request, () => {
          updated ??= update(under.otherWeights)
        })
        await updated
        const [old, fresh] = answer.segments
        expect(answer.segments).toHaveLength(2)
        expect(old).toEqual({ policyVersion: version - 1, start: 0, end: fresh!.start })
        expect(fresh).toEqual({ policyVersion: version, start: old!.end, end: 300 })
        await expectAgreement(under.weights, [answer], [request])
      },
    )

    changedTest('nothing', 'new weights are taken, and no answer changes with them', async () => {
      const request = requestOn(context)
      const before = await engine.generate(request)
      await update(under.otherWeights)
      expect((await engine.status()).version).toBe(version)
      const { tokens, logprobs, segments } = await engine.generate({
        ...request,
        requestId: `${request.requestId}-again`,
      })
      expect({ tokens, logprobs, segments }).toEqual({
        ...{ tokens: before.tokens, logprobs: before.logprobs, segments: before.segments },
      })
      await update(under.weights)
    })
  })
}
