/**
 * One generation on an SGLang server. It takes one request (a leg), or several if a pause ends a running leg, or if a
 * leg ends at a token that is an end token only in the model's files.
 *
 * in   a run (a growing generation)        out  its generation; the engine's sums of tokens and preemptions
 * Invariant: a leg begins while the gate is open, with the context and all tokens of the earlier legs. No request
 * of the generation continues on the server after its leg: it is aborted, or its connection is closed, which the server
 * takes for an abort. A token whose weights are unknown is dropped: one that came after a pause which does not end
 * running requests, in a leg without its last event.
 */
import { type Effects, systemEffects } from '../../../runtime/effects'
import type { Generation } from '../engine'
import type { ServerExpectation } from '../server/expectation'
import { garbage } from '../server/reply'
import { wanted } from '../server/request'
import type { ServerRequests } from '../server/requests'
import type { ServerRun } from '../server/run'
import { generateBody, pieceOfEvent, refusedBySglang } from './generate'
import type { SglangPolicy } from './policy'
import type { SglangTraits } from './traits'

export interface SglangAnswerOptions {
  readonly requests: ServerRequests
  readonly policy: SglangPolicy
  readonly traits: SglangTraits
  readonly expected: ServerExpectation
  readonly fx: Effects
}

interface SglangTotals {
  readonly generatedTokens: number
  readonly prefilledTokens: number
  readonly preemptions: number
}

/** Milliseconds between two aborts of a request: older servers may miss one. Newer ones act on the first one only. */
const abortAgainMs = 1000
/** Milliseconds after the first abort at which the connection is closed, if the leg has not ended. */
const abortGiveUpMs = 5000
/** Upper bound on one call of /abort_request, in milliseconds. */
const abortCallMs = 5000

export function sglangAnswers({ requests, policy, traits, expected, fx }: SglangAnswerOptions) {
  const { http, gate } = requests
  const { url } = http
  const totals = { generatedTokens: 0, prefilledTokens: 0, preemptions: 0 }

  /**
   * Runs one leg; returns null if another leg follows. Adds the leg's preemptions to `counts`; sets
   * `counts.cachedTokens` only if no leg has brought a token before.
   */
  async function leg(
    run: ServerRun,
    counts: { cachedTokens: number; preemptions: number },
  ): Promise<Generation['finish'] | null> {
    const { request, onTokens } = run
    const { sampling, seed, priority } = request
    const context = [...request.context, ...run.tokens]
    const maxTokens = run.maxTokens - run.tokens.length
    if (maxTokens <= 0) return run.ended('length')
    // The id ends with a dot so that no id begins with another one: the server aborts all requests whose id begins with
    // the given one.
    const rid = `${fx.unique()}.`
    const connection = new AbortController()
    const pauses = gate.closings
    const legStart = run.tokens.length
    let taken = 0
    let told = false
    let hasBegun = false
    let isComplete = false
    /**
     * Number of the generation's first tokens whose weights are known even if the leg's last event is lost: those
     * before a pause, or all tokens if a pause ends the leg.
     */
    let certain = legStart
    const calling = callOff(rid, run.aborter.signal, connection, () => hasBegun)
    const question = {
      path: '/generate',
      body: generateBody(traits, { rid, context, maxTokens, sampling, seed, priority }),
      refused: (status: number, message: string) => refusedBySglang(url, status, message),
      signal: connection.signal,
      mayBeEnded: () => gate.closings !== pauses || gate.closed,
    }
    const finish = await requests
      .ask(run, question, line => {
        hasBegun = true
        const piece = pieceOfEvent(url, expected.vocabulary, taken, line)
        if (!told && piece.cachedTokens !== null) {
          told = true
          if (run.tokens.length === 0) counts.cachedTokens = piece.cachedTokens
          totals.prefilledTokens += Math.max(0, context.length - piece.cachedTokens)
        }
        if (piece.tokens.length > 0) run.begun()
        piece.tokens.forEach((token, i) => {
          run.take(token, piece.logprobs[i]!, policy.versionOf(piece.labels[i]!))
        })
        taken += piece.tokens.length
        if (piece.legLabels !== null) run.relabel(legStart, piece.legLabels.map(policy.versionOf))
        if (policy.endsLegs || (gate.closings === pauses && !gate.closed)) certain = run.tokens.length
        totals.generatedTokens += piece.tokens.length
        if (piece.tokens.length > 0) onTokens?.(Int32Array.from(piece.tokens))
        if (piece.finish !== null) {
          isComplete = true
          counts.preemptions += piece.retractions
          totals.preemptions += piece.retractions
        }
        return piece.finish
      })
      .finally(() => {
        calling.stop()
        if (!isComplete) run.cut(certain)
      })
    if (finish === 'length' || run.isStopped) return run.ended(finish)
    if (finish === 'aborted') return run.aborter.signal.aborted ? 'aborted' : null
    if (taken === 0)
      throw garbage(url, 'the answer stopped without a token, although the tokens before do not end with a stop token')
    return null
  }

  /**
   * Ends the leg on the server when its signal aborts. A leg that has begun is aborted by its id, and its connection is
   * closed: at once if the reason is an error, after `abortGiveUpMs` if the caller ended the leg and the server goes
   * on. Before the first event the connection is closed at once: the server ignores all aborts of a request after one
   * that came before the request had reached its scheduler.
   */
  function callOff(
    rid: string,
    signal: AbortSignal,
    connection: AbortController,
    hasBegun: () => boolean,
  ): { stop(): void } {
    let timer: NodeJS.Timeout | undefined
    let began = 0
    const again = () => {
      if (systemEffects.elapsed() - began > abortGiveUpMs) return connection.abort(signal.reason)
      void http.post('/abort_request', { rid }, abortCallMs).catch(() => {}) // an error is ignored: the next abort or the health check reports it
      timer = setTimeout(again, abortAgainMs)
    }
    const onAbort = () => {
      if (!hasBegun()) return connection.abort(signal.reason)
      began = systemEffects.elapsed()
      again()
      if (signal.reason !== wanted) connection.abort(signal.reason)
    }
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
    return {
      stop() {
        clearTimeout(timer)
        signal.removeEventListener('abort', onAbort)
      },
    }
  }

  return {
    totals: totals as SglangTotals,
    async answer(run: ServerRun): Promise<Generation> {
      const { signal } = run.aborter
      const counts = { cachedTokens: 0, preemptions: 0 }
      let finish: Generation['finish'] | null = null
      while (finish === null) {
        await gate.passed(signal)
        finish = signal.reason === wanted ? 'aborted' : await leg(run, counts)
      }
      return run.generation(expected.decode, { finish, ...counts, queuedMs: 0 })
    },
  }
}
