/** The trajectories of a run, with the filters of `replay ls`. */
import { useState } from 'preact/hooks'
import type { Paged, TrajectoryLine } from '../../api'
import { isStatic } from '../data/ask'
import { number, signed } from '../format'
import { html } from '../html'
import { CopyCommand, Reward, Selection, Tag } from '../parts/small'
import { VirtualRows } from '../parts/virtualRows'
import { go, route, runLink, trajectoryLink, withQuery } from '../route'
import { Filters } from './filters'

export function Trajectories({ run }: { readonly run: string }) {
  const [page, set] = useState<Paged<TrajectoryLine> | undefined>(undefined)
  const query = new URLSearchParams(route.value.query)
  const path = `runs/${encodeURIComponent(run)}/trajectories?${query}`
  return html`<div class="toolbar"><h2>Trajectories</h2><span class="dim">${page === undefined ? '' : `${number(page.total)} match`}</span>
      ${
        isStatic
          ? null
          : html`<label>order <select value=${query.get('sort') ?? ''} onChange=${(e: Event) => go(withQuery({ sort: (e.target as HTMLSelectElement).value }))}>
        ${[
          ['', 'as requested'],
          ['newest', 'newest first'],
          ['reward', 'reward'],
          ['tokens', 'tokens'],
          ['errors', 'tool errors'],
        ].map(([value, text]) => html`<option value=${value}>${text}</option>`)}
      </select></label>`
      }</div>
    <${Filters} />
    <${VirtualRows} path=${path} onPage=${set} label="trajectories" head=${head} row=${(one: TrajectoryLine) => row(run, one)} />
    ${page === undefined ? null : html`<${CopyCommand} command=${page.command} />`}`
}

const head = html`<span role="columnheader" class="c id">trajectory</span><span role="columnheader" class="c n">step</span><span role="columnheader" class="c">state</span><span role="columnheader" class="c n">reward</span><span role="columnheader" class="c">selection</span><span role="columnheader" class="c n">advantage</span><span role="columnheader" class="c n">turns</span><span role="columnheader" class="c n">tokens</span><span role="columnheader" class="c n">calls</span><span role="columnheader" class="c n">errors</span><span role="columnheader" class="c n">policy</span><span role="columnheader" class="c task">task</span>`

function row(run: string, one: TrajectoryLine) {
  return html`<span role="cell" class="c id"><a data-move href=${trajectoryLink(run, one.trajectory)}>${one.trajectory}</a></span>
    <span role="cell" class="c n">${one.step}</span>
    <span role="cell" class="c"><${Tag} kind=${one.status}>${one.status}<//></span>
    <span role="cell" class="c n"><${Reward} reward=${one.reward} positive=${one.positive} /></span>
    <span role="cell" class="c">${one.purpose === 'train' ? html`<${Selection} selection=${one.selection} />` : html`<span class="dim">${one.purpose}</span>`}</span>
    <span role="cell" class="c n">${signed(one.advantage)}</span>
    <span role="cell" class="c n">${one.turns}</span>
    <span role="cell" class="c n">${number(one.sampledTokens)}</span>
    <span role="cell" class="c n">${one.toolCalls}</span>
    <span role="cell" class="c n">${one.toolErrors === 0 ? html`<span class="dim">0</span>` : html`<span class="warn">${one.toolErrors}</span>`}</span>
    <span role="cell" class="c n">${one.versions.join(', ')}</span>
    <span role="cell" class="c task"><a href=${`${runLink(run, 'trajectories')}?task=${encodeURIComponent(one.task)}`}>${one.task}</a></span>`
}
