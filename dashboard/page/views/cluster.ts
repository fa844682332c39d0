/** Participants of a run: engines with their KV cache, tool executors, topics with their lag, the supervision tree. */
import type { ActorLine, Cluster as ClusterReport, EngineLine } from '../../api'
import { useData } from '../data/useData'
import { ago, number, percent } from '../format'
import { html } from '../html'
import { CopyCommand, Refused, Tag, Waiting } from '../parts/small'
import { link } from '../route'

export function Cluster({ run }: { readonly run: string }) {
  const { value, failure } = useData<ClusterReport>(`runs/${encodeURIComponent(run)}/cluster`)
  if (value === undefined) return failure === undefined ? html`<${Waiting} />` : html`<${Refused} failure=${failure} />`
  return html`<h2>Engines</h2><div class="engines">${value.engines.map(engine)}</div>
    <div class="columns">
      <section class="card"><h2>Supervision</h2>${value.trees.map(tree => html`<div class="tree"><p class="dim">${tree.host}, process ${tree.pid}, ${tree.isStopped ? 'stopped' : 'last change'} ${ago(tree.at)}</p><ul><${Actor} actor=${tree.root} /></ul></div>`)}
        ${value.trees.length === 0 ? html`<p class="dim">The log holds no record of it.</p>` : null}</section>
      <div>
        <section class="card"><h2>Tool executors</h2>${value.executors.length === 0 ? html`<p class="dim">None has offered slots.</p>` : html`<div class="tablewrap" tabindex="0"><table class="list"><thead><tr><th>executor</th><th class="n">slots</th><th class="n">held</th><th>tools</th><th>offered</th></tr></thead><tbody>${value.executors.map(one => html`<tr><td>${one.executor}</td><td class="n">${one.slots}</td><td class="n">${one.held}</td><td>${one.tools.join(', ')}</td><td>${ago(one.at)}</td></tr>`)}</tbody></table></div>`}</section>
        <section class="card"><h2>Topics</h2><div class="tablewrap"><table class="list"><thead><tr><th>topic</th><th class="n">partition</th><th class="n">oldest</th><th class="n">next</th><th class="n">lag</th><th>last record</th></tr></thead><tbody>${value.topics.map(one => html`<tr><td><a href=${link(['r', run, 'log', one.topic, one.partition], { offset: one.oldest })}>${one.topic}</a></td><td class="n">${one.partition}</td><td class="n">${number(one.oldest)}</td><td class="n">${number(one.next)}</td><td class="n">${one.lag === null ? html`<span class="dim">–</span>` : number(one.lag)}</td><td>${one.lastAt === null ? '–' : ago(one.lastAt)}</td></tr>`)}</tbody></table></div></section>
      </div>
    </div>
    <section class="card"><h2>On a terminal</h2>${value.commands.map(({ what, command }) => html`<${CopyCommand} what=${what} command=${command} />`)}</section>`
}

function engine(one: EngineLine) {
  const share = (tokens: number | null) =>
    tokens === null || one.kvTokens === 0 ? 0 : Math.min(1, tokens / one.kvTokens)
  const bar = (kind: string, tokens: number | null) =>
    html`<i class=${kind} style=${{ width: `${share(tokens) * 100}%` }}></i>`
  return html`<article class="card engine" key=${one.engine}>
    <header><b>${one.engine}</b><${Tag} kind=${one.state === 'up' ? 'good' : 'bad'}>${one.state}<//><span class="dim">${one.kind}</span></header>
    ${one.reason === '' ? null : html`<p class="warn">${one.reason}</p>`}
    <div class="kv" role="img" aria-label=${`KV ${percent(share(one.referencedTokens))} held`}>${bar('held', one.referencedTokens)}<span class="mark" style=${{ left: `${share(one.expectedTokens) * 100}%` }} title="expected by the scheduler"></span></div>
    <dl class="about"><dt>KV held</dt><dd>${number(one.referencedTokens)} of ${number(one.kvTokens)}</dd><dt>expected</dt><dd>${number(one.expectedTokens)}</dd><dt>cached</dt><dd>${number(one.cachedTokens)}</dd>
      <dt>running</dt><dd>${number(one.running)} of ${number(one.maxSequences)}, ${number(one.waiting)} wait</dd><dt>tokens/s</dt><dd>${number(one.tokensPerSecond)}</dd><dt>policy</dt><dd>${number(one.version)}</dd><dt>preemptions</dt><dd>${number(one.preemptions)}</dd><dt>status</dt><dd>${one.at === null ? '–' : ago(one.at)}</dd></dl>
  </article>`
}

const colours: Readonly<Record<string, string>> = { up: 'good', stopped: 'none', 'given-up': 'bad' }

const Actor = ({ actor }: { readonly actor: ActorLine }) =>
  html`<li><span class="actor"><b>${actor.name}</b><span class="dim">${actor.kind}</span>${actor.state === '' ? null : html`<${Tag} kind=${colours[actor.state] ?? 'warn'}>${actor.state}<//>`}
    ${actor.restarts > 0 ? html`<span class="warn">${actor.restarts} ${actor.restarts === 1 ? 'restart' : 'restarts'}</span>` : null}${actor.reason === '' ? null : html`<span class="dim">${actor.reason}</span>`}${actor.devices.length === 0 ? null : html`<span class="dim">GPU ${actor.devices.join(', ')}</span>`}</span>
    ${actor.children.length === 0 ? null : html`<ul>${actor.children.map(child => html`<${Actor} actor=${child} key=${child.name} />`)}</ul>`}</li>`
