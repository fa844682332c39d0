/**
 * Commands that a view offers: each to copy, and to run if actions are allowed.
 *
 * in   commands of the server        out  rows; a click starts the action
 * Invariant: an action that pauses, drains or aborts a run, or starts its process again (`careful`), takes two clicks
 * within 4 s.
 */
import { useState } from 'preact/hooks'
import type { ActionRequest, OfferedCommand } from '../../apiActions'
import { act, mayAct } from '../data/actions'
import { html } from '../html'
import { CopyCommand } from './small'

interface OfferedProps {
  readonly run: string
  readonly commands: readonly OfferedCommand[]
}

export const Offered = ({ run, commands }: OfferedProps) =>
  html`${commands.map(one => html`<${One} key=${one.command} run=${run} one=${one} />`)}`

function One({ run, one: { what, command, action } }: { readonly run: string; readonly one: OfferedCommand }) {
  const [most, change] = useState(action?.action === 'limits' ? action.most : 0)
  if (action === undefined || !mayAct()) return html`<${CopyCommand} what=${what} command=${command} />`
  const request = action.action === 'limits' ? { ...action, most: Math.max(1, most) } : action
  return html`<${CopyCommand} what=${what} command=${command}>
    ${action.action === 'limits' ? html`<label>${action.limit} <input class="short" type="number" min="1" value=${most} onInput=${(e: InputEvent) => change(Math.floor(Number((e.target as HTMLInputElement).value)) || 1)} /></label>` : null}
    <${Run} run=${run} request=${request} label="run" name=${`run: ${what}`} />
  <//>`
}

interface RunProps {
  readonly run: string
  readonly request: ActionRequest
  readonly label: string
  readonly name: string
}

const careful: ReadonlySet<string> = new Set(['pause', 'drain', 'abort', 'resume'])

/** A button that starts an action. */
export function Run({ run, request, label, name }: RunProps) {
  const [asks, ask] = useState(false)
  if (!mayAct()) return null
  const click = () => {
    if (careful.has(request.action) && !asks) {
      ask(true)
      setTimeout(() => ask(false), 4000)
      return
    }
    ask(false)
    void act(run, request)
  }
  return html`<button type="button" class="run" onClick=${click} aria-label=${asks ? `sure? ${name}` : name}>${asks ? 'sure?' : label}</button>`
}
