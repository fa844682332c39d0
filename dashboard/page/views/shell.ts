/**
 * The frame of every view: the bar at the top, the tabs of a run, the keyboard.
 *
 * in   the address        out  the view that it names
 */
import type { VNode } from 'preact'
import { useEffect } from 'preact/hooks'
import { connection } from '../data/live'
import { html } from '../html'
import { switchTheme, theme } from '../parts/theme'
import { go, link, route } from '../route'
import { RunView } from './run'
import { Runs } from './runs'

export function Shell(): VNode {
  const { path } = route.value
  const run = path[0] === 'r' ? path[1] : undefined
  useEffect(() => {
    document.title =
      run === undefined
        ? 'Troupe: runs'
        : `${path.slice(3).join('/') || run}${path.length > 3 ? ` of ${run}` : ''}: Troupe`
  }, [path.join('/')])
  useEffect(() => {
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  }, [])
  return html`<header class="bar">
      <a class="brand" href=${link([])}><i aria-hidden="true"></i>Troupe</a>
      <nav class="crumbs" aria-label="place">
        ${run === undefined ? html`<span>runs</span>` : html`<a href=${link([])}>runs</a><span class="sep">/</span><a href=${link(['r', run])}>${run}</a>`}
      </nav>
      <${Connected} />
      <button type="button" class="plain" onClick=${switchTheme}>${theme.value === 'dark' ? 'light' : 'dark'}</button>
    </header>
    <main>${run === undefined ? html`<${Runs} />` : html`<${RunView} run=${run} key=${run} />`}</main>`
}

const words = { open: 'following', lost: 'connection lost, trying again', static: 'export', none: '' } as const

const Connected = () =>
  html`<span class=${`connected ${connection.value}`} role="status">${words[connection.value]}</span>`

/**
 * Handles keys without a modifier: o overview, t trajectories, g groups, s swimlanes, c cluster, l log; j and k move to
 * the next and the previous row; / moves to the search field.
 */
function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  if (event.target instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return
  const [kind, run] = route.value.path
  if (event.key === '/') {
    const search = document.querySelector<HTMLInputElement>('input[type=search]')
    if (search === null) return
    event.preventDefault()
    search.focus()
  }
  if (event.key === 'j' || event.key === 'k') moveBy(event.key === 'j' ? 1 : -1)
  const tabs: Readonly<Record<string, readonly string[]>> = {
    o: [],
    t: ['trajectories'],
    g: ['groups'],
    s: ['lanes'],
    c: ['cluster'],
    l: ['log'],
  }
  const tab = tabs[event.key]
  if (kind === 'r' && run !== undefined && tab !== undefined) go(link(['r', run, ...tab]))
}

/** Moves the focus by `distance` links among those that open an item of the visible list; at first to the first one. */
function moveBy(distance: number): void {
  const links = [...document.querySelectorAll<HTMLElement>('[data-move]')]
  const at = links.indexOf(document.activeElement as HTMLElement)
  const next = at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + distance))
  links[next]?.focus()
  links[next]?.scrollIntoView({ block: 'nearest' })
}
