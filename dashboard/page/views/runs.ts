/** View of the runs of the bus: a line for each, the newest first. */
import { useEffect } from 'preact/hooks'
import type { RunLine } from '../../api'
import { unfollow } from '../data/live'
import { useData } from '../data/useData'
import { ago, date, percent } from '../format'
import { html } from '../html'
import { Refused, State, Waiting } from '../parts/small'
import { runLink } from '../route'

/** Interval in ms at which the list is asked for again, because runs begin and end while it is shown. */
const againMs = (): number => 3000

export function Runs() {
  useEffect(unfollow, [])
  const { value, failure } = useData<readonly RunLine[]>('runs', true, againMs)
  if (value === undefined) return failure === undefined ? html`<${Waiting} />` : html`<${Refused} failure=${failure} />`
  if (value.length === 0)
    return html`<section class="pad"><h1>No runs yet</h1><p>Start one: <code>npx troupe train quickstart</code></p></section>`
  return html`<section class="pad">
    <h1>Runs</h1>
    <div class="tablewrap"><table class="list">
      <thead><tr><th>run</th><th>state</th><th>recipe</th><th class="n">step</th><th class="n">pass@1</th><th class="n">alarms</th><th>started</th><th>last record</th></tr></thead>
      <tbody>${value.map(line)}</tbody>
    </table></div>
  </section>`
}

function line(run: RunLine) {
  const name = html`<td><a data-move href=${runLink(run.run)}>${run.run}</a></td>`
  if (run.error !== undefined) return html`<tr key=${run.run}>${name}<td colspan="7" class="dim">${run.error}</td></tr>`
  return html`<tr key=${run.run}>
    ${name}
    <td><${State} state=${run.state} /></td>
    <td>${run.recipe}</td>
    <td class="n">${run.step}${run.plannedSteps === null ? '' : html`<span class="dim"> / ${run.plannedSteps}</span>`}</td>
    <td class="n">${percent(run.passAt1)}</td>
    <td class="n">${run.alarms === 0 ? html`<span class="dim">0</span>` : html`<span class="warn">${run.alarms}</span>`}</td>
    <td>${date(run.startedAt)}</td>
    <td>${ago(run.lastAt)}</td>
  </tr>`
}
