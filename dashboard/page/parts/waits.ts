/**
 * Shows what a run or a trajectory waits for: the chain from the open fact to the actor, engine or person that owes it.
 *
 * in   a run, and an id or none        out  a line for each wait, with the links of its chain
 */
import type { WaitLine, WhyReport } from '../../api'
import { useData } from '../data/useData'
import { milliseconds } from '../format'
import { html } from '../html'
import { runLink } from '../route'
import { CopyCommand, Tag } from './small'

const stuck: ReadonlySet<string> = new Set(['silent', 'down', 'gone', 'paused'])

export function Waits({ run, id }: { readonly run: string; readonly id?: string }) {
  const query = id === undefined ? '' : `?id=${encodeURIComponent(id)}`
  const { value, failure } = useData<WhyReport>(`runs/${encodeURIComponent(run)}/why${query}`)
  if (value === undefined) return html`<p class="dim">${failure?.message ?? 'reading the log…'}</p>`
  return html`<p>${value.outcome}${value.waits.length === 0 ? '; it waits for nothing' : ''}</p>
    ${value.waits.map(wait => html`<${Wait} key=${`${wait.id} ${wait.for}`} run=${run} wait=${wait} />`)}
    ${value.more === 0 ? null : html`<p class="dim">and ${value.more} other waits</p>`}
    <${CopyCommand} command=${value.command} />`
}

const Wait = ({ run, wait }: { readonly run: string; readonly wait: WaitLine }) =>
  html`<details class="wait">
    <summary><b>${wait.id}</b> has waited ${milliseconds(wait.since === 0 ? null : Math.max(0, Date.now() - wait.since))} for ${wait.for}${wait.count === 1 ? '' : ` (the oldest of ${wait.count})`}: ${wait.owes} <${Tag} kind=${stuck.has(wait.state) ? 'bad' : 'good'}>${wait.state}<//></summary>
    <ol class="chain">${wait.chain.map(link => html`<li><b>${link.name}</b> ${link.says} <span class="dim">${link.last}</span> ${link.place === '' ? null : html`<a href=${placeLink(run, link.place)}>${link.place}</a>`}</li>`)}</ol>
  </details>`

export function placeLink(run: string, place: string): string {
  const [topic = '', partition = '0', offset = '0'] = place.split(':')
  return `${runLink(run, 'log', topic, partition)}?offset=${offset}`
}
