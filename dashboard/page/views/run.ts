/**
 * One run: its header and its tabs, and the view that the address names.
 *
 * in   the run's name, the address        out  the view; the stream of the run's facts is followed meanwhile
 */
import { useEffect } from 'preact/hooks'
import type { Overview } from '../../api'
import { followRun } from '../data/live'
import { useData } from '../data/useData'
import { ago, number, percent, seconds } from '../format'
import { html } from '../html'
import { Refused, State, Waiting } from '../parts/small'
import { route, runLink } from '../route'
import { ActionDock } from './actionDock'
import { Cluster } from './cluster'
import { GroupView } from './group'
import { Groups } from './groups'
import { LanesView } from './lanes'
import { Log } from './log'
import { OverviewView } from './overview'
import { Trajectories } from './trajectories'
import { TrajectoryView } from './trajectory'

const tabs = [
  ['', 'Overview', 'o'],
  ['groups', 'Groups', 'g'],
  ['trajectories', 'Trajectories', 't'],
  ['lanes', 'Timeline', 's'],
  ['cluster', 'Cluster', 'c'],
  ['log', 'Log', 'l'],
] as const

const tabOf: Readonly<Record<string, string>> = { g: 'groups', t: 'trajectories' }

/** Interval in ms at which a live run's overview is requested again, since no fact reports that a run fell silent. */
const againMs = ({ state }: Overview): number | undefined => (state === 'live' ? 5000 : undefined)

export function RunView({ run }: { readonly run: string }) {
  const { value, failure } = useData<Overview>(`runs/${encodeURIComponent(run)}`, true, againMs)
  const cursor = value?.cursor
  useEffect(() => {
    if (cursor !== undefined) followRun(run, cursor)
  }, [run, cursor !== undefined])
  const [kind = '', first, second, third] = route.value.path.slice(2)
  const active = tabOf[kind] ?? kind
  const views = {
    '': () => (value === undefined ? html`<${Waiting} />` : html`<${OverviewView} run=${run} overview=${value} />`),
    groups: () => html`<${Groups} run=${run} />`,
    trajectories: () => html`<${Trajectories} run=${run} />`,
    lanes: () => html`<${LanesView} run=${run} steps=${value?.steps ?? []} />`,
    cluster: () => html`<${Cluster} run=${run} />`,
    log: () => html`<${Log} run=${run} />`,
    g: () => html`<${GroupView} run=${run} group=${first ?? ''} />`,
    t: () => html`<${TrajectoryView} run=${run} trajectory=${`${first}/${second}`} turn=${third} />`,
  }
  const view = views[kind as keyof typeof views] ?? (() => html`<p class="empty">There is no such view.</p>`)
  return html`${value === undefined ? null : html`<${Head} overview=${value} />`}
    <nav class="tabs" aria-label="views of the run">
      ${tabs.map(([name, title, key]) => html`<a href=${runLink(run, ...(name === '' ? [] : [name]))} class=${active === name ? 'active' : ''} aria-current=${active === name ? 'page' : undefined} title=${`key ${key}`}>${title}</a>`)}
    </nav>
    ${failure === undefined ? null : html`<${Refused} failure=${failure} />`}
    <section class="pad">${view()}</section>
    <${ActionDock} run=${run} />`
}

function Head({ overview: o }: { readonly overview: Overview }) {
  const before = o.evaluations[0]
  const after = o.evaluations.at(-1)
  const figure = (name: string, value: unknown, more: unknown = '') =>
    html`<div class="figure"><dt>${name}</dt><dd>${value}<small>${more}</small></dd></div>`
  const state =
    o.state === 'cut-off' ? `stopped at ${o.lastPlace}, no record for ${ago(o.lastAt).replace(' ago', '')}` : o.reason
  return html`<div class="head">
    <div class="title"><h1>${o.run}</h1><${State} state=${o.state} /><span class="dim">${state}</span></div>
    <dl class="figures">
      ${figure('step', o.step, o.plannedSteps === null ? '' : ` of ${o.plannedSteps}`)}
      ${figure('pass@1', percent(after?.passAt1), before === undefined || before === after ? '' : ` from ${percent(before.passAt1)}`)}
      ${figure('tokens/s', number(o.tokensPerSecond), ' over whole steps')}
      ${figure('steps/h', number(o.stepsPerHour))}
      ${o.state === 'live' ? figure('time left', seconds(o.secondsLeft)) : figure('took', seconds((o.lastAt - o.startedAt) / 1000))}
      ${figure('trajectories', number(o.trajectories), o.running > 0 ? ` ${number(o.running)} open` : '')}
      ${figure('last record', ago(o.lastAt), ` ${number(o.records)} in all`)}
      ${figure('alarms', o.alarms.length === 0 ? '0' : html`<span class="warn">${o.alarms.length}</span>`)}
    </dl>
  </div>`
}
