/**
 * Formats the calls of a session of the gateway for people: what each call added to the conversation, and its answer.
 *
 * in   facts of calls, in the log's order        out  lines of text
 * Invariant: everything that an agent or a model wrote is escaped, by the caller's `indented` or in this file.
 */
import type { CallFact, CallFinished } from '../../../messages/facts'
import { placeOfCall } from '../../../replay/placeOfCall'
import { addedTexts } from '../../../replay/trajectories/addedTexts'
import { escapeForTerminal, painter } from '../../io/terminal'

const paint = painter(process.stdout)

/** Indents a text by a mark, and escapes it. */
export type Indented = (text: string, mark: string) => readonly string[]

export function callLines(fact: CallFact, indented: Indented): readonly string[] {
  switch (fact.type) {
    case 'session.opened':
      if (fact.opening > 0)
        return ['', paint('yellow', `opened again (${fact.opening}): the calls before do not count`)]
      return fact.parent === undefined ? [] : [paint('dim', `parent: ${escapeForTerminal(fact.parent)}`)]
    case 'call.started':
      return [
        '',
        paint('bold', `${placeOfCall(fact)}, ${fact.tokens.length} new tokens of ${fact.contextTokens}`),
        ...addedTexts(fact).flatMap(({ role, text }) => [
          ...indented(text, paint('dim', `${escapeForTerminal(role)} │`)),
        ]),
      ]
    case 'call.finished':
      return answerLines(fact, indented)
    case 'call.delivered':
      return [
        paint(
          'yellow',
          `call ${fact.call}: the client ${fact.delivered ? 'got the answer by a retry' : 'went away before the answer'}`,
        ),
      ]
  }
}

function answerLines(fact: CallFinished, indented: Indented): readonly string[] {
  if (fact.finish === 'failed') return [paint('red', `call ${fact.call} failed: ${escapeForTerminal(fact.error)}`)]
  const versions = [...new Set(fact.segments.map(one => one.policyVersion))].join('→')
  const { startedAt, endedAt } = fact.timing
  const mean = fact.logprobs.reduce((a, b) => a + b, 0) / Math.max(1, fact.logprobs.length)
  const head = `answer of call ${fact.call}  ${fact.tokens.length} tokens, ${fact.finish}, policy ${versions}, ${Math.round(endedAt - startedAt)} ms on ${escapeForTerminal(fact.engine)}, mean logprob ${mean.toFixed(3)}, ${fact.cachedTokens} cached`
  return [paint('cyan', head), ...indented(fact.text.replace(/<\|im_end\|>\s*$/, ''), paint('cyan', '│'))]
}
