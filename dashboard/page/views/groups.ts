/** The groups of a run: how many of each were right, what the selection kept, which were rejected. */
import { useState } from 'preact/hooks'
import type { GroupLine, Paged } from '../../api'
import { number } from '../format'
import { html } from '../html'
import { CopyCommand, Tag } from '../parts/small'
import { VirtualRows } from '../parts/virtualRows'
import { route, runLink } from '../route'
import { Filters } from './filters'

export function Groups({ run }: { readonly run: string }) {
  const [page, set] = useState<Paged<GroupLine> | undefined>(undefined)
  const path = `runs/${encodeURIComponent(run)}/groups?${route.value.query}`
  return html`<div class="toolbar"><h2>Groups</h2><span class="dim">${page === undefined ? '' : `${number(page.total)} match, newest first`}</span></div>
    <${Filters} />
    <${VirtualRows} path=${path} onPage=${set} label="groups" head=${head} row=${(one: GroupLine) => row(run, one)} />
    ${page === undefined ? null : html`<${CopyCommand} command=${page.command} />`}`
}

const head = html`<span role="columnheader" class="c id">group</span><span role="columnheader" class="c n">step</span><span role="columnheader" class="c">decision</span><span role="columnheader" class="c wide">right · wrong</span><span role="columnheader" class="c n">kept</span><span role="columnheader" class="c n">tool errors</span><span role="columnheader" class="c n">tokens</span><span role="columnheader" class="c task">task</span>`

function row(run: string, one: GroupLine) {
  return html`<span role="cell" class="c id"><a data-move href=${runLink(run, 'g', one.group)}>${one.group}</a>${one.matching === one.size ? null : html` <span class="dim">${one.matching} match</span>`}</span>
    <span role="cell" class="c n">${one.step}</span>
    <span role="cell" class="c"><${Tag} kind=${one.decision}>${one.purpose === 'train' ? one.decision : one.purpose}<//></span>
    <span role="cell" class="c wide"><${Split} positives=${one.positives} rewarded=${one.rewarded} size=${one.size} /></span>
    <span role="cell" class="c n">${one.decision === 'selected' ? `${one.kept} of ${one.size}` : html`<span class="dim">–</span>`}</span>
    <span role="cell" class="c n">${one.toolErrors === 0 ? html`<span class="dim">0</span>` : html`<span class="warn">${one.toolErrors}</span>`}</span>
    <span role="cell" class="c n">${number(one.sampledTokens)}</span>
    <span role="cell" class="c task">${one.task}</span>`
}

/** A bar of the group's positives, negatives and members without a reward. */
export function Split({
  positives,
  rewarded,
  size,
}: {
  readonly positives: number
  readonly rewarded: number
  readonly size: number
}) {
  const part = (kind: string, count: number) =>
    count === 0 ? null : html`<i class=${kind} style=${{ flexGrow: count }}></i>`
  return html`<span class="split" role="img" aria-label=${`${positives} right, ${rewarded - positives} wrong, ${size - rewarded} without a reward`}>
    <b>${positives}</b><span class="parts">${part('good', positives)}${part('bad', rewarded - positives)}${part('none', size - rewarded)}</span><b>${rewarded - positives}</b></span>`
}
