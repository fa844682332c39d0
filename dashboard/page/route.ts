/**
 * Reads and writes the part of the address after `#`, which names the run and the view. Every view has its own address.
 *
 * in   `#/r/RUN/…?query`        out  parts and query; links to other views
 */
import { signal } from '@preact/signals'

export interface Route {
  /** Decoded parts of the path: `['r', RUN, 't', GROUP, MEMBER]`. */
  readonly path: readonly string[]
  readonly query: URLSearchParams
}

function parsed(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?')
  const parts = path.split('/').filter(part => part !== '')
  return { path: parts.map(decoded), query: new URLSearchParams(query) }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

export const route = signal<Route>(parsed(location.hash))
addEventListener('hashchange', () => {
  route.value = parsed(location.hash)
})

type Query = Readonly<Record<string, string | number | undefined>>

/** Writes an address of the page. Empty values of the query are left out. */
export function link(path: readonly (string | number)[], query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '')
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return `#/${path.map(part => encodeURIComponent(part)).join('/')}${text === '' ? '' : `?${text}`}`
}

export const runLink = (run: string, ...path: readonly (string | number)[]): string => link(['r', run, ...path])

export function trajectoryLink(run: string, trajectory: string, turn?: number): string {
  const at = trajectory.lastIndexOf('/')
  const parts = [trajectory.slice(0, at), trajectory.slice(at + 1)]
  return runLink(run, 't', ...parts, ...(turn === undefined ? [] : [turn]))
}

/** Returns this view's address with these values of its query replaced; other values stay, empty ones are left out. */
export function withQuery(change: Query): string {
  const { path, query } = route.value
  return link(path, { ...Object.fromEntries(query), ...change })
}

export function go(address: string): void {
  location.hash = address
}
