/** Lists raw records with their positions; a click opens one. The list is read page by page. */
import { useEffect, useState } from 'preact/hooks'
import type { EventLine, Paged } from '../../api'
import { ask, type Failure } from '../data/ask'
import { clock, number } from '../format'
import { html } from '../html'
import { CopyCommand, Refused, Waiting, Written } from '../parts/small'

const pageRows = 100

/** `from`: first record that is shown: an offset in a partition, or an index in the records of a trajectory. */
export function EventsOf({ path, from = 0 }: { readonly path: string; readonly from?: number }) {
  const [pages, set] = useState<readonly Paged<EventLine>[]>([])
  const [failure, fail] = useState<Failure | undefined>(undefined)
  const load = (offset: number) =>
    ask<Paged<EventLine>>(`${path}?offset=${offset}&limit=${pageRows}`).then(
      page => set(before => [...before, page]),
      fail,
    )
  useEffect(() => {
    set([])
    fail(undefined)
    void load(from)
  }, [path, from])
  const last = pages.at(-1)
  if (last === undefined) return failure === undefined ? html`<${Waiting} />` : html`<${Refused} failure=${failure} />`
  const next = last.offset + Math.max(last.rows.length, pageRows)
  return html`<ol class="events">${pages
    .flatMap(page => page.rows)
    .map(
      event => html`<li key=${event.place}><details>
      <summary><code>${event.place}</code><time>${clock(event.at)}</time><span class=${event.counts ? '' : 'struck'}>${event.line}</span>${event.counts ? null : html`<em>does not count</em>`}</summary>
      <${Written} text=${event.json} /></details></li>`,
    )}</ol>
    ${last.rows.length === 0 ? html`<p class="empty">No record is here yet.</p>` : null}
    ${next < last.total ? html`<button type="button" onClick=${() => load(next)}>show more: ${number(last.total - next)} are left</button>` : null}
    <${CopyCommand} command=${last.command} />`
}
