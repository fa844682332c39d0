/**
 * Shows a call of a captured session: what it continues, what the agent added, the answer. Branches are indented.
 *
 * in   a call of the session's tree        out  an article
 */
import type { Part } from '../../api'
import { clock, milliseconds, number } from '../format'
import { html } from '../html'
import { Tag, Written } from './small'
import { placeLink } from './waits'

type CapturedCall = Extract<Part, { kind: 'captured' }>

const mostDepth = 6

export function CapturedCall({ run, part }: { readonly run: string; readonly part: CapturedCall }) {
  const { call, parent, branch, finish } = part
  const from = parent === null ? 'begins anew' : `continues call ${parent}`
  return html`<article class=${`message captured depth${Math.min(mostDepth, part.depth)} ${finish === 'failed' ? 'broken' : ''}`} id=${`turn-${call}`}>
    <header><b>call ${call}${part.attempt > 0 ? `, attempt ${part.attempt}` : ''}</b><${Tag}>${part.label}<//>
      <span>${from}${branch === '' ? '' : ` (${branch})`}</span><span>${part.dialect} ${part.model}</span>
      <span>${number(part.tokens)} new tokens in a context of ${number(part.contextTokens)}</span>
      ${part.delivered ? null : html`<span class="warn">the client went away before the answer</span>`}
      ${part.counts ? null : html`<span class="warn">not trained on</span>`}
      <a href=${placeLink(run, part.place)} title=${clock(part.at)}>${part.place}</a></header>
    ${part.messages.map(m => html`<h3>${m.role}</h3><${Written} text=${m.content} />`)}
    <h3>answer</h3><p class="dim">${finish === 'open' ? 'not yet' : `${finish}, ${number(part.answerTokens)} tokens, policy ${part.versions.join(', ')}, ${milliseconds(part.generationMs)} on ${part.engine}, ${number(part.cachedTokens)} cached`}</p>
    ${finish === 'open' ? null : html`<${Written} text=${part.answer} />`}</article>`
}
