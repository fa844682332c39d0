/**
 * One trajectory: as messages, as tokens, as raw events; its siblings; commands to fork, rerun or compare it.
 *
 * in   a trajectory's report, the turn that the address names
 * out  the view; n and p open the next and previous sibling
 */
import { useEffect } from 'preact/hooks'
import type { Part, TrajectoryReport } from '../../api'
import { isStatic } from '../data/ask'
import { useData } from '../data/useData'
import { clock, milliseconds, number, signed } from '../format'
import { html } from '../html'
import { CapturedCall } from '../parts/capturedCall'
import { Offered, Run } from '../parts/offered'
import { CopyCommand, Refused, Reward, Selection, Tag, Waiting, Written } from '../parts/small'
import { placeLink, Waits } from '../parts/waits'
import { go, link, route, runLink, trajectoryLink, withQuery } from '../route'
import { EventsOf } from './events'
import { Tokens } from './tokens'

interface Props {
  readonly run: string
  readonly trajectory: string
  readonly turn: string | undefined
}

const modes = [
  ['', 'Messages'],
  ['tokens', 'Tokens'],
  ['events', 'Events'],
] as const

export function TrajectoryView({ run, trajectory, turn }: Props) {
  const [group = '', member = ''] = trajectory.split('/')
  const path = `runs/${encodeURIComponent(run)}/trajectories/${encodeURIComponent(group)}/${encodeURIComponent(member)}`
  const { value, failure } = useData<TrajectoryReport>(path)
  const mode = route.value.query.get('view') ?? ''
  useEffect(() => {
    if (turn !== undefined) document.getElementById(`turn-${turn}`)?.scrollIntoView({ block: 'start' })
  }, [turn, value === undefined])
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.target instanceof HTMLInputElement || value === undefined) return
      const at = value.siblings.findIndex(one => one.trajectory === value.summary.trajectory)
      const next = value.siblings[at + (event.key === 'n' ? 1 : event.key === 'p' ? -1 : Number.NaN)]
      if (next !== undefined) go(trajectoryLink(run, next.trajectory))
    }
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  }, [value])
  if (value === undefined) return failure === undefined ? html`<${Waiting} />` : html`<${Refused} failure=${failure} />`
  const { summary } = value
  return html`<div class="toolbar"><h2>${summary.trajectory}</h2>
      <${Tag} kind=${summary.status}>${summary.status}<//><${Reward} reward=${summary.reward} positive=${summary.positive} />
      ${summary.purpose === 'train' ? html`<${Selection} selection=${summary.selection} />` : html`<${Tag}>${summary.purpose}<//>`}
      <a href=${runLink(run, 'g', group)}>its group</a><a class="dim" href=${link(['r', run, 'groups'], { step: summary.step })}>step ${summary.step}</a></div>
    ${value.forkOf === null ? null : html`<${ForkedFrom} run=${run} fork=${value.forkOf} />`}
    <${Siblings} run=${run} report=${value} />
    <dl class="figures slim">${figures(value).map(([name, text]) => html`<div class="figure"><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>
    ${value.selectionWhy === '' ? null : html`<p class="verdict">${value.selectionWhy}</p>`}
    ${summary.status === 'running' && !isStatic ? html`<section class="card"><h2>What it waits for</h2><${Waits} run=${run} id=${summary.trajectory} /></section>` : null}
    <nav class="modes" aria-label="ways to read the trajectory">${modes.map(([name, title]) => html`<a href=${withQuery({ view: name })} class=${mode === name ? 'active' : ''} aria-current=${mode === name ? 'true' : undefined}>${title}</a>`)}</nav>
    ${mode === 'tokens' ? html`<${Tokens} path=${path} />` : mode === 'events' ? html`<${EventsOf} path=${`${path}/events`} />` : html`<${Messages} run=${run} report=${value} />`}
    <section class="card"><h2>On a terminal</h2><${CopyCommand} what="show" command=${value.command} />
      <${Offered} run=${run} commands=${value.commands} /></section>`
}

interface ForkedFromProps {
  readonly run: string
  readonly fork: NonNullable<TrajectoryReport['forkOf']>
}

const ForkedFrom = ({ run, fork }: ForkedFromProps) =>
  html`<p>forked from <a href=${trajectoryLink(fork.run, fork.parent)}>${fork.parent}</a>${fork.run === run ? '' : ` of run ${fork.run}`} at ${fork.unit} ${fork.turn}</p>`

const figures = ({
  summary: s,
  penalty,
  promptTokens,
  tools,
  seed,
}: TrajectoryReport): readonly (readonly [string, unknown])[] => [
  ['advantage', signed(s.advantage)],
  ['penalty', penalty === null ? '–' : penalty.toFixed(2)],
  ['turns', s.turns],
  ['tokens', `${number(s.sampledTokens)} + ${number(promptTokens)} prompt`],
  [
    'tool calls',
    s.toolErrors > 0 ? html`${s.toolCalls}, <span class="warn">${s.toolErrors} failed</span>` : s.toolCalls,
  ],
  ['policy', s.versions.join(', ')],
  ['tools', tools.join(', ')],
  ['seed', seed],
  ['end', s.reason === '' ? s.status : s.reason],
]

const Siblings = ({ run, report }: { readonly run: string; readonly report: TrajectoryReport }) =>
  html`<nav class="siblings" aria-label="rollouts of the same group">${report.siblings.map(one => {
    const member = one.trajectory.slice(one.trajectory.lastIndexOf('/') + 1)
    const kind = one.reward === null ? 'none' : one.positive ? 'good' : 'bad'
    const active = one.trajectory === report.summary.trajectory
    return html`<a href=${trajectoryLink(run, one.trajectory)} class=${`${kind} ${one.selection ?? ''} ${active ? 'active' : ''}`} aria-current=${active ? 'true' : undefined} title=${`reward ${one.reward ?? '–'}, ${one.selection ?? 'undecided'}`}>${member}</a>`
  })}<span class="dim">n, p: next, previous</span></nav>`

function Messages({ run, report }: { readonly run: string; readonly report: TrajectoryReport }) {
  return html`<div class="messages">
    ${report.prompt.map(m => html`<article class="message"><header><b>${m.role}</b></header><${Written} text=${m.content} /></article>`)}
    ${report.parts.map(part => (part.kind === 'turn' ? html`<${Turn} run=${run} part=${part} trajectory=${report.summary.trajectory} />` : part.kind === 'captured' ? html`<${CapturedCall} run=${run} part=${part} />` : html`<${Call} run=${run} part=${part} />`))}
    <article class="message judge"><header><b>judge</b><${Reward} reward=${report.summary.reward} positive=${report.summary.positive} />${report.how === null ? null : html`<span class="dim">${report.how.text}</span>`}</header>
      <div class="pair"><div><h3>answer</h3>${report.answer === null ? html`<p class="dim">none</p>` : html`<${Written} text=${report.answer} />`}</div>${report.truth === null ? null : html`<div><h3>truth</h3><${Written} text=${report.truth} /></div>`}</div>
      ${report.why === null ? null : html`<${Written} text=${report.why} />`}</article>
  </div>`
}

type TurnPart = Extract<Part, { kind: 'turn' }>
type CallPart = Extract<Part, { kind: 'call' }>

interface TurnProps {
  readonly run: string
  readonly part: TurnPart
  readonly trajectory: string
}

const Turn = ({ run, part, trajectory }: TurnProps) =>
  html`<article class=${`message model ${part.interrupted ? 'broken' : ''}`} id=${`turn-${part.turn}`}>
    <header><b>turn ${part.turn}${part.attempt > 0 ? `, attempt ${part.attempt}` : ''}</b>
      <span>${part.interrupted ? 'interrupted: ' : ''}${part.finish}</span><span>${number(part.tokens)} tokens</span>
      <span>policy ${part.versions.join(', ')}</span><span>${part.engine}</span>
      <span title="in the engine's queue">queued ${milliseconds(part.queuedMs)}</span><span title="from its start to its end">generated in ${milliseconds(part.generationMs)}</span>
      ${part.meanLogprob === null ? null : html`<span>mean logprob ${part.meanLogprob.toFixed(3)}</span>`}
      <a href=${placeLink(run, part.place)} title=${clock(part.at)}>${part.place}</a>
      <${Run} run=${run} request=${{ action: 'fork', trajectory, turn: part.turn }} label="fork here" name=${`fork here: before turn ${part.turn}, and go on live`} /></header>
    <${Written} text=${part.text} /></article>`

const Call = ({ run, part }: { readonly run: string; readonly part: CallPart }) =>
  html`<article class=${`message tool ${part.status === 'ok' ? 'ok' : 'failed'}`}>
    <header><b>${part.tool === '' ? 'unreadable call' : part.tool}</b><${Tag} kind=${part.status === 'ok' ? 'good' : 'bad'}>${part.status}<//>
      <span>${milliseconds(part.wallMs)}</span>${part.waitedMs === null ? null : html`<span>waited ${milliseconds(part.waitedMs)}</span>`}
      ${part.exitCode === null || part.exitCode === 0 ? null : html`<span>exit ${part.exitCode}</span>`}${part.signal === null ? null : html`<span>${part.signal}</span>`}
      ${part.executor === null ? html`<span>not sent to an executor</span>` : html`<span>${part.executor}</span>`}
      <a href=${placeLink(run, part.place)} title=${clock(part.at)}>${part.place}</a></header>
    <div class="pair"><div><h3>call</h3><${Written} text=${part.arguments} /></div><div><h3>result</h3><${Written} text=${part.text} />${part.stderr.text === '' ? null : html`<h3>stderr</h3><${Written} text=${part.stderr} />`}${part.files === null ? null : html`<h3>files</h3><${Written} text=${part.files} />`}</div></div></article>`
