/**
 * Renders a long list: only its visible rows are in the document, and the rows are read page by page.
 *
 * in   a path of /api that is paged by offset, how to draw a row
 * out  rows, with placeholders until their page arrives
 * Invariant: a row is never blank: while its page is read, a placeholder stands in its place.
 */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from '@tanstack/virtual-core'
import type { VNode } from 'preact'
import { useEffect, useMemo, useReducer, useRef } from 'preact/hooks'
import type { Paged } from '../../api'
import { ask } from '../data/ask'
import { grown } from '../data/live'
import { html } from '../html'
import { rowKeys } from './rowKeys'

const pageRows = 200
export const rowPixels = 34

export interface VirtualRowsProps<T> {
  /** Path below /api with its query, without offset and limit. */
  readonly path: string
  readonly row: (row: T, index: number) => VNode
  readonly head: VNode
  readonly onPage?: (page: Paged<T>) => void
  readonly label: string
}

interface Loaded<T> {
  total: number
  readonly rows: Map<number, T>
  readonly asked: Set<number>
}

export function VirtualRows<T>({ path, row, head, onPage, label }: VirtualRowsProps<T>): VNode {
  const scroller = useRef<HTMLDivElement>(null)
  const [, redraw] = useReducer((n: number) => n + 1, 0)
  const loaded = useMemo<Loaded<T>>(() => ({ total: -1, rows: new Map(), asked: new Set() }), [path])
  const growth = grown.value

  const virtualizer = useMemo(
    () =>
      new Virtualizer<HTMLDivElement, Element>({
        count: 0,
        getScrollElement: () => scroller.current,
        estimateSize: () => rowPixels,
        overscan: 8,
        ...{ scrollToFn: elementScroll, observeElementRect, observeElementOffset },
        onChange: () => redraw(undefined),
        // Assumed size of the list, in pixels, until the browser has measured it: it decides how many rows are drawn
        // first.
        initialRect: { width: 1000, height: 800 },
      }),
    [],
  )
  virtualizer.setOptions({ ...virtualizer.options, count: Math.max(0, loaded.total) })
  virtualizer._willUpdate()
  useEffect(() => virtualizer._didMount(), [])

  const load = (page: number) => {
    if (loaded.asked.has(page)) return
    loaded.asked.add(page)
    const joint = path.includes('?') ? '&' : '?'
    ask<Paged<T>>(`${path}${joint}offset=${page * pageRows}&limit=${pageRows}`).then(
      found => {
        loaded.total = found.total
        found.rows.forEach((one, i) => {
          loaded.rows.set(found.offset + i, one)
        })
        onPage?.(found)
        redraw(undefined)
      },
      () => loaded.asked.delete(page),
    )
  }
  const visible = virtualizer.getVirtualItems()
  const keysOf = useMemo(rowKeys, [path])
  const keys = keysOf(visible.map(item => item.index))
  const pages = new Set([0, ...visible.map(item => Math.floor(item.index / pageRows))])
  useEffect(() => {
    // The run has grown: pages that are in view are asked for again, the others when they come into view.
    loaded.asked.clear()
    for (const page of pages) load(page)
  }, [path, growth])
  useEffect(() => {
    for (const page of pages) load(page)
  })

  return html`<div class="rows" role="table" aria-label=${label} aria-rowcount=${loaded.total}>
    <div role="rowgroup"><div class="rowhead" role="row">${head}</div></div>
    <div class="scroller" role="rowgroup" ref=${scroller} tabindex="0" aria-label=${label}>
      <div class="spacer" style=${{ height: `${virtualizer.getTotalSize()}px` }}>
        ${visible.map(({ index, start }, i) => {
          const one = loaded.rows.get(index)
          const style = { transform: `translateY(${start}px)`, height: `${rowPixels}px` }
          return html`<div class="row" role="row" key=${keys[i]} style=${style}>
            ${one === undefined ? html`<span role="cell" class="placeholder">…</span>` : row(one, index)}
          </div>`
        })}
      </div>
    </div>
  </div>
  ${loaded.total === 0 ? html`<p class="empty">Nothing to show: no rollout was requested yet, or none matches the filters.</p>` : null}`
}
