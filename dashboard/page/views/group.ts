/**
 * A group side by side: each rollout with its reward, penalties and advantage, whether the selection kept it, and why.
 *
 * in   a group's report        out  a row for each member, what other selections would keep, the task
 */
import type { GroupMember, GroupReport } from '../../api'
import { useData } from '../data/useData'
import { byReward, number, signed } from '../format'
import { html } from '../html'
import { Offered } from '../parts/offered'
import { Refused, Reward, Selection, Waiting, Written } from '../parts/small'
import { link, runLink, trajectoryLink } from '../route'
import { Split } from './groups'

const decisions = {
  selected: 'A part of the group was selected',
  whole: 'The group was kept whole',
  rejected: 'The group was rejected',
  open: 'The group is not decided yet',
} as const

export function GroupView({ run, group }: { readonly run: string; readonly group: string }) {
  const { value, failure } = useData<GroupReport>(`runs/${encodeURIComponent(run)}/groups/${encodeURIComponent(group)}`)
  if (value === undefined) return failure === undefined ? html`<${Waiting} />` : html`<${Refused} failure=${failure} />`
  const rewarded = value.members.filter(one => one.reward !== null)
  const positives = rewarded.filter(one => one.positive).length
  const kept = value.members.filter(one => one.selection === 'kept').length
  const order = [...value.members].sort(
    (a, b) => byReward(a.reward, b.reward) || rank(a) - rank(b) || a.member - b.member,
  )
  return html`<div class="toolbar"><h2>Group ${value.group}</h2>
      <a class="dim" href=${link(['r', run, 'groups'], { step: value.step })}>step ${value.step}</a><span class="dim">${value.task}</span></div>
    <section class="card summary">
      <div><strong>${decisions[value.decision]}</strong>${value.reason === '' ? '' : `: ${value.reason}`}
        ${value.decision === 'selected' ? html`<span class="dim"> (${value.selection}): ${kept} of ${value.members.length} are kept for training</span>` : null}</div>
      <${Split} positives=${positives} rewarded=${rewarded.length} size=${value.members.length} />
      <span class="dim">${value.unexplained !== '' ? value.unexplained : html`random numbers: ${value.generator}, seed ${value.seed}${value.agrees === null ? '' : value.agrees ? "; today's code makes the same selection" : "; today's code makes another selection"}`}</span>
    </section>
    <div class="tablewrap"><table class="list members">
      <thead><tr><th>rollout</th><th>reward</th><th>selection</th><th class="n">advantage</th><th class="n" title="failed calls / calls; 0.5 without calls">p_err</th><th class="n" title="penalty for more than one answer tag, or for none">p_format</th><th class="n">weight</th><th class="n">calls</th><th class="n">errors</th><th class="n">tokens</th><th>answer</th><th class="why">why</th></tr></thead>
      <tbody>${order.map(one => member(run, one))}</tbody>
    </table></div>
    <div class="columns">
      <section class="card"><h2>Task</h2>${value.prompt.map(m => html`<h3>${m.role}</h3><${Written} text=${m.content} />`)}${value.truth === null ? null : html`<h3>truth</h3><${Written} text=${value.truth} />`}</section>
      <section class="card"><h2>What other selections would keep</h2><${Variants} report=${value} /></section>
    </div>
    <section class="card"><h2>On a terminal</h2><${Offered} run=${run} commands=${value.commands} /></section>`
}

const rank = ({ selection }: GroupMember): number => (selection === 'kept' ? 0 : 1)

function member(run: string, one: GroupMember) {
  const penalty = (value: number | null) => (value === null ? html`<span class="dim">–</span>` : value.toFixed(2))
  return html`<tr key=${one.member} class=${one.selection ?? ''}>
    <td><a data-move href=${trajectoryLink(run, one.trajectory)}>#${one.member}</a></td>
    <td><${Reward} reward=${one.reward} positive=${one.positive} /></td>
    <td><${Selection} selection=${one.selection} /></td>
    <td class="n">${signed(one.advantage)}</td>
    <td class="n">${penalty(one.errorPenalty)}</td>
    <td class="n">${penalty(one.formatPenalty)}</td>
    <td class="n">${one.weight === null ? html`<span class="dim">–</span>` : one.weight.toPrecision(3)}</td>
    <td class="n">${one.toolCalls}</td>
    <td class="n">${one.toolErrors === 0 ? html`<span class="dim">0</span>` : html`<span class="warn">${one.toolErrors}</span>`}</td>
    <td class="n">${number(one.sampledTokens)}</td>
    <td class="answer">${one.answer === null ? '' : one.answer.text}</td>
    <td class="why">${one.why}</td>
  </tr>`
}

function Variants({ report }: { readonly report: GroupReport }) {
  const names = Object.keys(report.variants)
  return html`<div class="tablewrap" tabindex="0"><table class="list small"><thead><tr><th>rollout</th>${names.map(name => html`<th class="n">${name}</th>`)}</tr></thead>
    <tbody>${report.members.filter(one => one.reward !== null).map(one => html`<tr><td>#${one.member}</td>${names.map(name => html`<td class="n">${signedOr(report.variants[name]!.advantages[one.member])}</td>`)}</tr>`)}</tbody>
    <tfoot><tr><td></td>${names.map(name => html`<td class="n dim">${report.variants[name]!.outcome}</td>`)}</tr></tfoot></table></div>`
}

const signedOr = (value: number | undefined) => (value === undefined ? html`<span class="dim">·</span>` : signed(value))

export const groupLink = (run: string, group: string): string => runLink(run, 'g', group)
