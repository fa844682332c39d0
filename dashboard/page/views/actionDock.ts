/**
 * Dock at the foot of a run's page: the actions that were started, with what each printed.
 *
 * in   the run's actions        out  the newest 6, the first of them open; a button to stop, a link to the run made
 */
import { useEffect, useState } from 'preact/hooks'
import type { ActionLine } from '../../apiActions'
import { actions, mayAct, refusedAction, showActions, stopAction } from '../data/actions'
import { seconds } from '../format'
import { html } from '../html'
import { Refused, Tag, Written } from '../parts/small'
import { runLink } from '../route'

const words = { running: 'running', done: 'done', failed: 'failed' } as const
const kinds = { running: 'warn', done: 'good', failed: 'bad' } as const
const mostShown = 6

export function ActionDock({ run }: { readonly run: string }) {
  useEffect(() => showActions(run), [run])
  const [folded, fold] = useState(false)
  const { allowed, actions: all } = actions.value
  const failure = refusedAction.value
  if (allowed && !mayAct())
    return html`<p class="dock note">Actions are allowed on this server. To use them, open the address that it printed (with #token=…) in this tab.</p>`
  if (all.length === 0 && failure === undefined) return null
  return html`<aside class="dock" aria-label="actions">
    <header><b>Actions</b>${all[0] === undefined ? null : html`<span class="dim">${all[0].action}: ${words[all[0].state]}</span>`}
      <button type="button" class="plain" aria-expanded=${!folded} onClick=${() => fold(!folded)}>${folded ? 'show' : 'hide'}</button></header>
    ${folded ? null : html`${failure === undefined ? null : html`<${Refused} failure=${failure} />`}${all.slice(0, mostShown).map((one, i) => html`<${Line} key=${one.id} run=${run} one=${one} open=${i === 0} />`)}`}
  </aside>`
}

function Line({ run, one, open }: { readonly run: string; readonly one: ActionLine; readonly open: boolean }) {
  const took = ((one.endedAt ?? Date.now()) - one.startedAt) / 1000
  return html`<details class=${`action ${one.state}`} open=${open}>
    <summary><${Tag} kind=${kinds[one.state]}>${words[one.state]}<//><code>${one.command}</code><span class="dim">${seconds(took)}${one.exitCode === null || one.exitCode === 0 ? '' : `, exit code ${one.exitCode}`}</span></summary>
    ${one.dropped === 0 ? null : html`<p class="dim">${one.dropped} earlier characters are left out</p>`}
    <${Written} text=${one.output} />
    <p>${one.state === 'running' ? html`<button type="button" onClick=${() => void stopAction(run, one.id)}>stop</button>` : null}
      ${one.opens === null || one.opens === run ? null : html`<a href=${runLink(one.opens, ...(one.action === 'fork' ? ['trajectories'] : []))}>open run ${one.opens}</a>`}</p>
  </details>`
}
