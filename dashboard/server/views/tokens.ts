/**
 * Lists the tokens of a trajectory in the order in which the model saw them, with what the log records of each.
 *
 * in   an opened run, a trajectory
 * out  one page of tokens, in spans: the prompt, tokens appended to the context, or the tokens sampled in one turn
 * For a captured session (an agent's calls through the gateway) it shows only the prompt.
 * Invariant: the token ids are those in the log; no text is tokenised here. Only sampled tokens can be trained on.
 */
import { modelDirectories, type TokenTexts, tokenTexts } from '../../../replay/tokens/tokenTexts'
import { factsIn, selectionOf, type Trajectory } from '../../../replay/trajectories/trajectory'
import { escapeForTerminal } from '../../../runtime/escapeForTerminal'
import type { TokenPage, TokenSpan } from '../../api'
import { type CommandPlace, commandOf } from '../commands'
import type { OpenedRun } from '../openedRun'
import type { PageOf } from './lists'
import { trajectoryOf } from './trajectory'

const texts = new WeakMap<OpenedRun, Promise<TokenTexts>>()

function textsOf(run: OpenedRun): Promise<TokenTexts> {
  let known = texts.get(run)
  if (known === undefined) {
    known = modelDirectories(run.recorded)
      .then(tokenTexts)
      .catch(() => () => undefined)
    texts.set(run, known)
  }
  return known
}

export async function tokenPage(run: OpenedRun, place: CommandPlace, asked: string, page: PageOf): Promise<TokenPage> {
  const one = await trajectoryOf(run, asked)
  const text = await textsOf(run)
  const spans: TokenSpan[] = []
  let total = 0
  for (const span of spansOf(one)) {
    const begin = Math.max(0, page.offset - total)
    const end = Math.min(span.ids.length, page.offset + page.limit - total)
    total += span.ids.length
    if (begin < end) spans.push(shownSpan(span, begin, end, text))
  }
  return {
    ...{ total, offset: page.offset, spans, advantage: selectionOf(one).advantage },
    command: commandOf(place, 'replay', 'show', one.id, '--tokens'),
  }
}

interface RawSpan {
  readonly kind: TokenSpan['kind']
  readonly turn: number
  readonly ids: Int32Array
  readonly logprobs?: Float32Array
  readonly entropies?: Float32Array | undefined
  readonly segments?: readonly { readonly policyVersion: number; readonly start: number; readonly end: number }[]
}

function* spansOf(one: Trajectory): Generator<RawSpan> {
  yield { kind: 'prompt', turn: 0, ids: one.request.tokens }
  for (const fact of factsIn(one)) {
    if (fact.type === 'context.appended') yield { kind: 'appended', turn: fact.turn, ids: fact.tokens }
    if (fact.type !== 'turn.completed' && fact.type !== 'turn.interrupted') continue
    const { turn, tokens: ids, logprobs, entropies, segments } = fact
    yield { kind: 'sampled', turn, ids, logprobs, entropies, segments }
  }
}

function shownSpan(span: RawSpan, begin: number, end: number, text: TokenTexts): TokenSpan {
  const ids = Array.from(span.ids.subarray(begin, end))
  const numbers = (values: Float32Array | undefined) =>
    values === undefined || values.length === 0
      ? null
      : Array.from(values.subarray(begin, end), v => Number(v.toFixed(4)))
  const versionAt = (i: number) => span.segments?.find(s => i >= s.start && i < s.end)?.policyVersion ?? -1
  return {
    ...{ kind: span.kind, turn: span.turn, ids },
    texts: ids.map(id => escapeForTerminal((text(id) ?? `‹${id}›`).slice(0, 200))),
    logprobs: numbers(span.logprobs),
    entropies: numbers(span.entropies),
    versions: span.segments === undefined ? null : ids.map((_, i) => versionAt(begin + i)),
  }
}
