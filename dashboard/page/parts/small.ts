/** Small parts that many views use: states, texts with their cut, commands to copy, refusals. */
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import type { RunState, ShownText } from '../../api'
import type { Failure } from '../data/ask'
import { number } from '../format'
import { html } from '../html'

const stateWords: Readonly<Record<RunState, string>> = {
  live: 'live',
  done: 'finished',
  stopped: 'stopped',
  failed: 'failed',
  'cut-off': 'cut off',
}

export const State = ({ state }: { readonly state: RunState }) =>
  html`<span class=${`state ${state}`}><i></i>${stateWords[state]}</span>`

/** A reward, a status or a selection as a small label. */
export const Tag = ({ kind, children }: { readonly kind?: string; readonly children?: unknown }) =>
  html`<span class=${`tag ${kind ?? ''}`}>${children}</span>`

export const Reward = ({ reward, positive }: { readonly reward: number | null; readonly positive: boolean }) =>
  reward === null
    ? html`<span class="dim">–</span>`
    : html`<${Tag} kind=${positive ? 'good' : 'bad'}>${number(reward)}<//>`

export const Selection = ({ selection }: { readonly selection: string | null }) =>
  selection === null ? html`<span class="dim">open</span>` : html`<${Tag} kind=${selection}>${selection}<//>`

/** Text that a model, a tool or a task wrote. */
export const Written = ({ text, kind = '' }: { readonly text: ShownText; readonly kind?: string }) =>
  text.text === ''
    ? html`<p class="dim">(empty)</p>`
    : html`<pre class=${`written ${kind}`} tabindex="0">${text.text}${
        text.cut === 0 ? null : html`<em class="cut">… ${number(text.cut)} more characters are left out</em>`
      }</pre>`

interface CommandProps {
  readonly command: string
  readonly what?: string
  /** Controls beside the button that copies. */
  readonly children?: unknown
}

export function CopyCommand({ command, what, children }: CommandProps): VNode {
  const [copied, set] = useState(false)
  const copy = () => {
    const done = () => {
      set(true)
      setTimeout(() => set(false), 1500)
    }
    navigator.clipboard?.writeText(command).then(done, () => {})
  }
  return html`<div class="command">
    ${what === undefined ? null : html`<span class="what">${what}</span>`}
    <code tabindex="0">${command}</code>
    <button type="button" onClick=${copy} aria-label=${`copy the command ${command}`}>${copied ? 'copied' : 'copy'}</button>${children}
  </div>`
}

export const Refused = ({ failure }: { readonly failure: Failure }) =>
  html`<div class="refused" role="alert"><strong>${failure.message}</strong>
    ${failure.hint === undefined ? null : html`<p>${failure.hint}</p>`}<code>${failure.code}</code></div>`

export const Waiting = () => html`<div class="waiting" aria-busy="true">reading the log…</div>`
