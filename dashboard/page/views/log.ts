/** The log itself: the records of any partition, from any offset. */
import type { Cluster } from '../../api'
import { useData } from '../data/useData'
import { number } from '../format'
import { html } from '../html'
import { go, link, route } from '../route'
import { EventsOf } from './events'

export function Log({ run }: { readonly run: string }) {
  const [topic = 'runs', partition = '0'] = route.value.path.slice(3)
  const offset = Math.max(0, Number(route.value.query.get('offset') ?? 0) || 0)
  const { value } = useData<Cluster>(`runs/${encodeURIComponent(run)}/cluster`, false)
  const path = `runs/${encodeURIComponent(run)}/log/${encodeURIComponent(topic)}/${encodeURIComponent(partition)}`
  const there = (value?.topics ?? []).find(one => one.topic === topic && String(one.partition) === partition)
  const choose = (event: Event) => {
    const [name = '', number = '0'] = (event.target as HTMLSelectElement).value.split(':')
    go(link(['r', run, 'log', name, number]))
  }
  return html`<div class="toolbar"><h2>Log</h2>
      <select aria-label="topic" value=${`${topic}:${partition}`} onChange=${choose}>${(value?.topics ?? []).map(one => html`<option value=${`${one.topic}:${one.partition}`}>${one.topic} ${one.partition} (${number(one.next - one.oldest)})</option>`)}</select>
      <label>from offset <input type="text" inputmode="numeric" value=${offset} onChange=${(e: Event) => go(link(['r', run, 'log', topic, partition], { offset: (e.target as HTMLInputElement).value }))} /></label>
      ${there === undefined ? null : html`<button type="button" onClick=${() => go(link(['r', run, 'log', topic, partition], { offset: Math.max(there.oldest, there.next - 100) }))}>newest</button>`}</div>
    <${EventsOf} path=${path} from=${offset} />`
}
