/**
 * The training rows of a captured session hold exactly the tokens that were sampled, each once, with the logprobs and the
 * versions that it was sampled under, whatever calls an agent makes.
 */
import fc from 'fast-check'
import { callRows } from '../../../kernels/calls/callRows'
import { callTree, counts } from '../../../kernels/calls/callTree'
import type { CallFact, CallFinished, CallLabel, CallStarted, SessionOpened } from '../../../messages/facts'
import { engineId, groupId, policyVersion, trajectoryId } from '../../../messages/ids'

const trajectory = trajectoryId(groupId('s'), 0)
const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }
const timing = { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 }

const opened = (opening: number): SessionOpened => ({
  ...{ type: 'session.opened', at: 0, trajectory, opening, keyDigest: `key-${opening}`, expiresAt: 9 },
})

const started = (
  call: number,
  parent: number | null,
  tokens: Int32Array,
  contextTokens: number,
  more: Partial<CallStarted> = {},
): CallStarted => ({
  ...{
    type: 'call.started',
    at: 0,
    trajectory,
    opening: 0,
    call,
    attempt: 0,
    dialect: 'chat',
    model: 'm',
    label: 'main',
  },
  ...{
    parent,
    branch: null,
    digest: '',
    messages: '[]',
    tools: '',
    tokens,
    contextTokens,
    sampling,
    seed: 0,
    maxTokens: 9,
    asked: {},
  },
  ...more,
})

const finished = (call: number, tokens: Int32Array, more: Partial<CallFinished> = {}): CallFinished => ({
  ...{ type: 'call.finished', at: 0, trajectory, call, attempt: 0, engine: engineId('e'), tokens, text: '' },
  ...{
    logprobs: Float32Array.from(tokens, t => -t / 1024),
    finish: 'stop',
    error: '',
    cachedTokens: 0,
    preemptions: 0,
    timing,
  },
  segments: [{ policyVersion: policyVersion(call % 3), start: 0, end: tokens.length }],
  ...more,
})

/** One thing that an agent, its client or the engine does. Numbers choose among what is there at the time. */
const step = fc.record({
  kind: fc.constantFrom(
    'call',
    'call',
    'call',
    'answer',
    'answer',
    'answer',
    'fail',
    'lose',
    'deliver',
    'again',
    'twice',
    'reopen',
  ),
  pick: fc.nat(1000),
  tail: fc.nat(3),
  sampled: fc.nat(4),
  label: fc.constantFrom<CallLabel>('main', 'main', 'subagent', 'compaction', 'aux'),
})

/** Plays the steps against an engine that notes under which context it sampled each token. */
function play(steps: readonly { kind: string; pick: number; tail: number; sampled: number; label: CallLabel }[]) {
  const facts: CallFact[] = [opened(0)]
  let token = 1
  const fresh = (n: number) => Int32Array.from({ length: n }, () => token++)
  let opening = 0
  let next = 0
  const contexts = new Map<number, Int32Array>()
  const running = new Map<number, CallStarted>()
  const answered = new Map<number, Int32Array>()
  const at = <T>(list: readonly T[], pick: number): T | undefined =>
    list.length === 0 ? undefined : list[pick % list.length]
  for (const { kind, pick, tail, sampled, label } of steps) {
    const open = at([...running.keys()], pick)
    switch (kind) {
      case 'call': {
        const parents = [null, ...answered.keys()]
        const parent = at(parents, pick)!
        const before =
          parent === null ? new Int32Array() : Int32Array.from([...contexts.get(parent)!, ...answered.get(parent)!])
        const tokens = fresh(tail + 1)
        const context = Int32Array.from([...before, ...tokens])
        const fact = started(next, parent, tokens, context.length, { label, opening })
        contexts.set(next, context)
        running.set(next++, fact)
        facts.push(fact)
        break
      }
      case 'answer':
      case 'fail':
        if (open !== undefined) {
          const tokens = fresh(kind === 'fail' ? 1 : sampled)
          const { attempt } = running.get(open)!
          facts.push(finished(open, tokens, { attempt, ...(kind === 'fail' ? { finish: 'failed' as const } : {}) }))
          if (kind === 'answer') answered.set(open, tokens)
          running.delete(open)
        }
        break
      case 'again':
        // The process died: the call is asked again, and the answer to the first attempt comes too late.
        if (open !== undefined) {
          const again = { ...running.get(open)!, attempt: running.get(open)!.attempt + 1 }
          running.set(open, again)
          facts.push(again, finished(open, fresh(2), { attempt: again.attempt - 1 }))
        }
        break
      case 'lose':
      case 'deliver': {
        const call = at([...answered.keys()], pick)
        if (call !== undefined)
          facts.push({ type: 'call.delivered', at: 0, trajectory, call, delivered: kind === 'deliver' })
        break
      }
      case 'twice':
        facts.push(facts[pick % facts.length]!)
        break
      case 'reopen':
        if (pick % 5 === 0) {
          facts.push(opened(++opening))
          running.clear()
          answered.clear()
        }
        break
    }
  }
  return { facts, contexts, answered }
}

test('training rows are exactly the sampled tokens that count, each once, under the context, logprob and version of its sampling', () => {
  let several = 0
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60, size: 'max' }), steps => {
      const { facts, contexts, answered } = play(steps)
      const tree = callTree(facts)
      const labels: CallLabel[] = ['main', 'compaction']
      const rows = callRows(tree, labels)
      if (rows.length > 1) several++
      const trained = new Map<number, { logprob: number; version: number; before: readonly number[] }>()
      for (const row of rows) {
        row.mask.forEach((bit, i) => {
          const token = row.tokens[i]!
          if (bit === 0) {
            expect([row.engineLogprobs[i], row.versions[i]]).toEqual([0, -1])
            return
          }
          expect(trained.has(token)).toBe(false)
          trained.set(token, {
            logprob: row.engineLogprobs[i]!,
            version: row.versions[i]!,
            before: [...row.tokens.subarray(0, i)],
          })
        })
        expect(row.oldestVersion).toBe(Math.min(...[...row.versions].filter((_, i) => row.mask[i] === 1)))
      }
      let expected = 0
      for (const [call, tokens] of answered) {
        if (!counts(tree, call) || !labels.includes(tree.nodes.get(call)!.started.label)) continue
        tokens.forEach((token, i) => {
          expected++
          expect(trained.get(token)).toEqual({
            logprob: Math.fround(-token / 1024),
            version: call % 3,
            before: [...contexts.get(call)!, ...tokens.subarray(0, i)],
          })
        })
      }
      expect(trained.size).toBe(expected)
    }),
    { numRuns: 300 },
  )
  expect(several).toBeGreaterThan(50)
})

test('an answer that the client never got is not trained on, unless a later call holds it', () => {
  const first = [opened(0), started(0, null, Int32Array.of(1), 1), finished(0, Int32Array.of(2))]
  const lost: CallFact = { type: 'call.delivered', at: 0, trajectory, call: 0, delivered: false }
  expect(callRows(callTree(first))).toHaveLength(1)
  expect(callRows(callTree([...first, lost]))).toEqual([])
  expect(callRows(callTree([...first, lost, { ...lost, delivered: true }]))).toHaveLength(1)
  const continued = [...first, lost, started(1, 0, Int32Array.of(3), 3), finished(1, Int32Array.of(4))]
  expect(callRows(callTree(continued)).map(row => row.calls)).toEqual([[0, 1]])
})

test.each<[string, CallFact[], RegExp]>([
  [
    'fewer logprobs than tokens',
    [started(0, null, Int32Array.of(1), 1), finished(0, Int32Array.of(2, 3), { logprobs: Float32Array.of(0) })],
    /call 0: it has 2 tokens but 1 logprobs/,
  ],
  [
    'segments that leave a token out',
    [
      started(0, null, Int32Array.of(1), 1),
      finished(0, Int32Array.of(2, 3), { segments: [{ policyVersion: policyVersion(0), start: 0, end: 1 }] }),
    ],
    /call 0: the policy segments 0-1 do not cover its 2 tokens/,
  ],
  [
    'a context of another length',
    [started(0, null, Int32Array.of(1), 2), finished(0, Int32Array.of(2))],
    /call 0: its context has 1 tokens in the log, expected 2/,
  ],
])('%s are refused, never repaired', (_title, facts, message) => {
  expect(() => callRows(callTree([opened(0), ...facts]))).toThrow(message)
})
