/**
 * Shows a trajectory's tokens, coloured by what the user picks: logprob, entropy, mask, advantage or policy version.
 *
 * in   pages of tokens
 * out  each token as text; on hover its id, and where recorded its logprob, entropy and policy version
 */
import { useEffect, useState } from 'preact/hooks'
import type { TokenPage, TokenSpan } from '../../api'
import { ask } from '../data/ask'
import { number, signed } from '../format'
import { html } from '../html'
import { CopyCommand, Waiting } from '../parts/small'

const overlays = ['logprob', 'entropy', 'mask', 'advantage', 'policy'] as const
type Overlay = (typeof overlays)[number]
const pageTokens = 4096

export function Tokens({ path }: { readonly path: string }) {
  const [overlay, choose] = useState<Overlay>('logprob')
  const [pages, set] = useState<readonly TokenPage[]>([])
  const load = (offset: number) =>
    ask<TokenPage>(`${path}/tokens?offset=${offset}&limit=${pageTokens}`).then(
      page => set(before => [...before.filter(p => p.offset !== page.offset), page]),
      () => {},
    )
  useEffect(() => {
    set([])
    void load(0)
  }, [path])
  const [first] = pages
  if (first === undefined) return html`<${Waiting} />`
  const spans = pages.flatMap(page => page.spans)
  const read = spans.reduce((sum, span) => sum + span.ids.length, 0)
  const hasEntropy = spans.some(span => span.entropies !== null)
  return html`<div class="toolbar"><div class="segmented" role="group" aria-label="overlay">${overlays.map(name => html`<button type="button" class=${overlay === name ? 'active' : ''} aria-pressed=${overlay === name} disabled=${name === 'entropy' && !hasEntropy} onClick=${() => choose(name)}>${name}</button>`)}</div>
      <span class="dim">${explained(overlay, first.advantage, hasEntropy)}</span></div>
    <div class="tokens">${spans.map(span => html`<${Span} span=${span} overlay=${overlay} advantage=${first.advantage} />`)}</div>
    ${read < first.total ? html`<button type="button" onClick=${() => load(read)}>show more: ${number(first.total - read)} of ${number(first.total)} tokens are left</button>` : null}
    <${CopyCommand} command=${first.command} />`
}

function explained(overlay: Overlay, advantage: number | null, hasEntropy: boolean): string {
  switch (overlay) {
    case 'logprob':
      return 'red: the policy gave the token a probability below 10 %, amber: below 50 %, yellow: below 90 %'
    case 'entropy':
      return hasEntropy ? 'the darker, the less sure the policy was' : 'the engine recorded no entropies'
    case 'mask':
      return advantage === null
        ? 'marked: sampled, but not trained on so far; pale: prompt, tool responses and template'
        : 'marked: sampled and kept for training; pale: prompt, tool responses and template'
    case 'advantage':
      return advantage === null
        ? 'no advantage: the trajectory was not kept for training, or its group is not decided yet'
        : `every sampled token is trained with ${signed(advantage)}`
    case 'policy':
      return 'a colour for each policy version'
  }
}

function Span({
  span,
  overlay,
  advantage,
}: {
  readonly span: TokenSpan
  readonly overlay: Overlay
  readonly advantage: number | null
}) {
  const title =
    span.kind === 'prompt'
      ? 'prompt'
      : span.kind === 'appended'
        ? `after turn ${span.turn}: tool response and template`
        : `turn ${span.turn}`
  return html`<section class=${`span ${span.kind}`}><h3>${title}<small> ${number(span.ids.length)} tokens</small></h3><p>${span.ids.map((_, i) => html`<span class=${`token ${shade(span, i, overlay, advantage)}`} title=${describe(span, i)}>${span.texts[i]}</span>`)}</p></section>`
  function describe(one: TokenSpan, i: number): string {
    const logprob = one.logprobs?.[i]
    const parts = [`id ${one.ids[i]}`]
    if (logprob !== undefined) parts.push(`logprob ${logprob.toFixed(3)} (${(Math.exp(logprob) * 100).toFixed(1)} %)`)
    if (one.entropies?.[i] !== undefined) parts.push(`entropy ${one.entropies[i].toFixed(3)}`)
    if (one.versions?.[i] !== undefined) parts.push(`policy ${one.versions[i]}`)
    return parts.join(', ')
  }
}

function shade(span: TokenSpan, i: number, overlay: Overlay, advantage: number | null): string {
  if (span.kind !== 'sampled') return 'pale'
  switch (overlay) {
    case 'logprob': {
      const probability = Math.exp(span.logprobs?.[i] ?? 0)
      return probability < 0.1 ? 'heat4' : probability < 0.5 ? 'heat3' : probability < 0.9 ? 'heat2' : ''
    }
    case 'entropy': {
      const entropy = span.entropies?.[i] ?? 0
      return entropy > 1.5 ? 'cool4' : entropy > 0.7 ? 'cool3' : entropy > 0.2 ? 'cool2' : entropy > 0.05 ? 'cool1' : ''
    }
    case 'mask':
      return advantage === null ? 'cool1' : 'cool2'
    case 'advantage':
      return advantage === null || advantage === 0 ? '' : advantage > 0 ? 'plus' : 'minus'
    case 'policy':
      return `policy${Math.abs(span.versions?.[i] ?? 0) % 6}`
  }
}
