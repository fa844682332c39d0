/**
 * The first view of a run: alarms, then what the run waits for, then curves, on which a click opens the groups of a
 * step, then what happened.
 *
 * in   the overview; perhaps that of a run to compare with
 * out  alarms, waits, curves, marks (events in the run's life), the latest facts, the run's origin, commands
 */
import { useState } from 'preact/hooks'
import type { AlarmLine, EvaluationPoint, Mark, Overview, RunLine } from '../../api'
import { isStatic } from '../data/ask'
import { latestFacts, seenFacts } from '../data/live'
import { useData } from '../data/useData'
import { clock, date, number, percent, seconds } from '../format'
import { html } from '../html'
import { Chart, type Curve } from '../parts/chart'
import { Offered } from '../parts/offered'
import { CopyCommand } from '../parts/small'
import { placeLink, Waits } from '../parts/waits'
import { go, link, route, runLink, trajectoryLink, withQuery } from '../route'

interface Panel {
  readonly name: string
  readonly title: string
  readonly hint: string
  readonly format?: (value: number | null) => string
}

const panels: readonly Panel[] = [
  {
    name: 'evaluation',
    title: 'Evaluation pass@1',
    hint: 'pass@1 on problems that are never trained on',
    format: percent,
  },
  {
    name: 'reward',
    title: 'Mean reward',
    hint: 'mean over the rollouts of the step that have a reward, before selection',
  },
  {
    name: 'toolErrorRateInPositives',
    title: 'Tool errors in positives',
    hint: 'share of failed calls in positives (reward above selection.positiveAbove): RoC lowers it',
    format: percent,
  },
  {
    name: 'toolErrorRate',
    title: 'Tool errors',
    hint: 'share of failed calls in all rollouts with a reward',
    format: percent,
  },
  { name: 'meanTokens', title: 'Sampled tokens a rollout', hint: 'mean over the rollouts that ended' },
  { name: 'meanToolCalls', title: 'Tool calls a rollout', hint: 'mean over the rollouts that ended' },
  { name: 'entropy', title: 'Entropy', hint: 'entropy of the policy, in nats a token' },
  {
    name: 'klEngine',
    title: 'Mismatch engine–trainer',
    hint: "KL divergence between the engine's and the trainer's token probabilities, in nats a token",
  },
  {
    name: 'klReference',
    title: 'KL to the reference',
    hint: 'KL divergence from the reference model, in nats a token',
  },
  { name: 'staleness', title: 'Staleness', hint: 'policy versions between sampling and training, mean over tokens' },
  {
    name: 'rejectedShare',
    title: 'Rejected groups',
    hint: 'share of the decided groups that were rejected; they give no gradient',
    format: percent,
  },
  { name: 'truncatedShare', title: 'Truncated', hint: 'share of rollouts that ended at a limit', format: percent },
  { name: 'gradNorm', title: 'Gradient norm', hint: 'norm of the gradient before clipping' },
  { name: 'loss', title: 'Loss', hint: 'loss of the optimizer step' },
  {
    name: 'clipFraction',
    title: 'Clipped',
    hint: 'share of tokens whose probability ratio the loss clipped',
    format: percent,
  },
  { name: 'tokensPerSecond', title: 'Tokens/s', hint: 'sampled tokens of the step, divided by its whole time' },
  {
    name: 'stepSeconds',
    title: 'Time of a step',
    hint: 'from the first request for a rollout of the step to its end',
    format: seconds,
  },
]

export function OverviewView({ run, overview }: { readonly run: string; readonly overview: Overview }) {
  const [smoothing, smooth] = useState(0)
  const other = route.value.query.get('with') ?? ''
  const { value: compared } = useData<Overview>(other === '' ? undefined : `runs/${encodeURIComponent(other)}`, false)
  const all = compared === undefined ? [overview] : [overview, compared]
  const shown = panels
    .map(panel => ({ panel, curves: all.map(one => curveOf(one, panel.name)) }))
    .filter(({ curves }) => curves.some(({ points }) => points.some(({ value }) => value !== null)))
  return html`<${Alarms} run=${run} alarms=${overview.alarms} />
    ${overview.startedAt === 0 ? html`<p class="empty">The run is starting: its process loads the model and the tasks, and has not written its first fact (run.started) yet.</p>` : null}
    ${isStatic || overview.state === 'done' || overview.startedAt === 0 ? null : html`<${WaitsFor} run=${run} open=${overview.step === 0} />`}
    <div class="toolbar">
      <h2>Curves</h2>
      <label>smoothing <input type="range" min="0" max="0.95" step="0.05" value=${smoothing} onInput=${(e: InputEvent) => smooth(Number((e.target as HTMLInputElement).value))} /></label>
      <${CompareWith} run=${run} other=${other} />
      <span class="dim">a click on a point opens the groups of its step</span>
    </div>
    <div class="charts">
      ${shown.map(({ panel, curves }) => html`<${Chart} key=${panel.name} title=${panel.title} hint=${panel.hint} curves=${curves} smoothing=${smoothing} format=${panel.format} onStep=${(step: number) => go(link(['r', run, 'groups'], { step }))} />`)}
    </div>
    ${shown.length === 0 && overview.startedAt > 0 ? html`<p class="empty">No step is over yet. The <a href=${link(['r', run, 'lanes'])}>timeline</a> shows the rollouts that run now.</p>` : null}
    <div class="columns">
      <${Marks} marks=${overview.marks} />
      <${Facts} run=${run} />
    </div>
    ${overview.startedAt === 0 ? null : html`<${About} overview=${overview} />`}
    <section class="card"><h2>On a terminal</h2><${CopyCommand} what="these figures" command=${overview.command} /><${Offered} run=${run} commands=${overview.commands} /></section>`
}

/**
 * Section that shows what the run waits for. Until the first step is over the section is open, and names the work in
 * progress, such as the cold start; later the page asks the server for it only when the user opens the section.
 */
function WaitsFor({ run, open }: { readonly run: string; readonly open: boolean }) {
  const [shown, show] = useState(open)
  return html`<details class="card" open=${open} onToggle=${(e: Event) => show((e.target as HTMLDetailsElement).open)}>
    <summary><b>What it waits for</b></summary>${shown ? html`<${Waits} run=${run} />` : null}</details>`
}

function curveOf(overview: Overview, name: string): Curve {
  const points =
    name === 'evaluation'
      ? overview.evaluations.map((one: EvaluationPoint) => ({ step: one.step, value: one.passAt1 }))
      : overview.steps.map(step => ({
          step: step.step,
          value: step.outcome === 'open' && name !== 'reward' ? null : (step.values[name] ?? null),
        }))
  return { run: overview.run, points }
}

function CompareWith({ run, other }: { readonly run: string; readonly other: string }) {
  const { value } = useData<readonly RunLine[]>('runs', false)
  const others = (value ?? []).filter(one => one.run !== run)
  if (others.length === 0) return null
  return html`<label>beside <select value=${other} onChange=${(e: Event) => go(withQuery({ with: (e.target as HTMLSelectElement).value }))}>
    <option value="">no other run</option>${others.map(one => html`<option value=${one.run}>${one.run}</option>`)}</select></label>`
}

function Alarms({ run, alarms }: { readonly run: string; readonly alarms: readonly AlarmLine[] }) {
  if (alarms.length === 0) return null
  const shown = alarms.slice(0, 6)
  return html`<div class="alarms" role="region" aria-label="alarms">
    ${shown.map(
      alarm => html`<article class="alarm" key=${alarm.place}>
      <div><strong>${alarm.alarm}</strong><span class="dim">${alarm.step > 0 ? `step ${alarm.step}, ` : ''}${date(alarm.at)}</span></div>
      <p>${alarm.message}</p>
      <div class="next"><a href=${`${runLink(run)}/${alarm.link}`}>look at its cause</a><a href=${placeLink(run, alarm.place)}>${alarm.place}</a></div>
      <${CopyCommand} command=${alarm.command} />
    </article>`,
    )}
    ${alarms.length > shown.length ? html`<p class="dim">${alarms.length - shown.length} older alarms are in the log</p>` : null}
  </div>`
}

const mostMarks = 40

const Marks = ({ marks }: { readonly marks: readonly Mark[] }) =>
  html`<section class="card"><h2>What happened</h2><ol class="marks">
    ${marks
      .filter(mark => mark.kind !== 'weights')
      .slice(-mostMarks)
      .reverse()
      .map(mark => html`<li class=${mark.kind}><time>${date(mark.at)}</time><span>${mark.text}</span></li>`)}
  </ol></section>`

function Facts({ run }: { readonly run: string }) {
  const facts = latestFacts.value.slice(0, 40)
  return html`<section class="card"><h2>Latest facts${seenFacts.value === 0 ? null : html`<small class="dim"> ${number(seenFacts.value)} since this page was opened</small>`}</h2>
    ${facts.length === 0 ? html`<p class="dim">None since this page was opened.</p>` : null}
    <ol class="facts" data-seen=${seenFacts.value}>${facts.map(fact => html`<li key=${fact.place}><a href=${fact.id.includes('/') ? trajectoryLink(run, fact.id) : placeLink(run, fact.place)}><b>${fact.type}</b> ${fact.line}</a><time>${clock(fact.at)}</time></li>`)}</ol></section>`
}

function About({ overview: o }: { readonly overview: Overview }) {
  const rows: readonly (readonly [string, string])[] = [
    ['recipe', `${o.recipe}, digest ${o.recipeDigest.slice(0, 12)}`],
    ['code', o.codeDigest.slice(0, 12)],
    ['seed', number(o.seed)],
    [
      'versions',
      Object.entries(o.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(', '),
    ],
    ['newest record', o.lastPlace],
    ...(o.faults.length === 0 ? [] : [['unreadable', o.faults.join('; ')] as const]),
  ]
  return html`<section class="card"><h2>About this run</h2><dl class="about">${rows.map(([name, text]) => html`<dt>${name}</dt><dd>${text}</dd>`)}</dl></section>`
}
