/** Form for the filters of `replay ls`. The address of the page holds their values. */
import { isStatic } from '../data/ask'
import { html } from '../html'
import { go, route, withQuery } from '../route'

const choices: readonly (readonly [string, readonly string[]])[] = [
  ['status', ['running', 'answered', 'truncated', 'failed']],
  ['purpose', ['train', 'eval', 'fork', 'chat']],
  ['selection', ['kept', 'dropped', 'rejected']],
]

const textOf = (event: Event): string => (event.target as HTMLInputElement).value

const rewards: readonly (readonly [string, string])[] = [
  ['', 'any reward'],
  ['>0', 'reward > 0'],
  ['<=0', 'reward ≤ 0'],
  ['none', 'no reward'],
]

/** Choice of a reward. If the address has another comparison of `replay ls --reward`, the choice lists that, too. */
function RewardFilter() {
  const given = route.value.query.get('reward') ?? ''
  const known = rewards.some(([value]) => value === given)
  const all = known ? rewards : [...rewards, [given, `reward ${given}`] as const]
  return html`<select name="reward" aria-label="reward" value=${given} onChange=${(e: Event) => go(withQuery({ reward: textOf(e) }))}>${all.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>`
}

export function Filters() {
  const { query } = route.value
  const change = (name: string) => (event: Event) => go(withQuery({ [name]: textOf(event) }))
  const flag = (name: string, text: string) =>
    html`<label class="check"><input type="checkbox" checked=${query.get(name) === '1'} onChange=${(e: Event) => go(withQuery({ [name]: (e.target as HTMLInputElement).checked ? 1 : '' }))} />${text}</label>`
  const field = (name: string, placeholder: string, type = 'text') =>
    html`<input type=${type} name=${name} aria-label=${name} placeholder=${placeholder} value=${query.get(name) ?? ''} onChange=${change(name)} />`
  const active = [...query.keys()].filter(name => name !== 'sort' && query.get(name) !== '')
  return html`<form class="filters" onSubmit=${(e: Event) => e.preventDefault()}>
    ${isStatic ? null : field('text', 'search text in tasks, turns, tool results  (/)', 'search')}
    ${field('step', 'step')}
    ${isStatic ? null : html`<${RewardFilter} />${field('policy', 'policy version')}${field('task', 'task')}`}
    ${choices.map(([name, values]) => html`<select name=${name} aria-label=${name} value=${query.get(name) ?? ''} onChange=${change(name)}><option value="">any ${name}</option>${values.map(one => html`<option value=${one}>${one}</option>`)}</select>`)}
    ${flag('toolErrors', 'tool errors')}
    ${isStatic ? null : flag('multiTurn', 'several turns')}
    ${active.length === 0 ? null : html`<button type="button" onClick=${() => go(withQuery(Object.fromEntries(active.map(name => [name, '']))))}>clear ${active.length} ${active.length === 1 ? 'filter' : 'filters'}</button>`}
  </form>`
}
