/**
 * Swimlanes on a canvas: one lane for each trajectory of a step shows what the trajectory waited for and did, and when.
 *
 * in   lanes of a step        out  a canvas; a click opens the trajectory
 */
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Lane, LanePiece, Lanes, StepPoint } from '../../api'
import { useData } from '../data/useData'
import { byReward, milliseconds, number } from '../format'
import { html } from '../html'
import { drawLanes, laneAt, laneHeight, laneTop, type Picture, pictureOf } from '../parts/laneCanvas'
import { CopyCommand, Refused, Waiting } from '../parts/small'
import { colour, theme } from '../parts/theme'
import { go, route, trajectoryLink, withQuery } from '../route'

type Order = 'start' | 'length' | 'reward'

export function LanesView({ run, steps }: { readonly run: string; readonly steps: readonly StepPoint[] }) {
  const numbers = steps.map(one => one.step)
  const step = route.value.query.get('step') ?? String(numbers.at(-1) ?? '')
  const order = (route.value.query.get('order') ?? 'start') as Order
  const path =
    step === '' ? undefined : `runs/${encodeURIComponent(run)}/lanes?step=${encodeURIComponent(step)}&limit=256`
  const { value, failure } = useData<Lanes>(path)
  if (step === '') return html`<p class="empty">No rollout has been requested yet.</p>`
  const index = numbers.indexOf(Number(step))
  const move = (by: number) => () => {
    const next = numbers[index + by]
    if (next !== undefined) go(withQuery({ step: next }))
  }
  return html`<div class="toolbar"><h2>Timeline</h2>
      <button type="button" onClick=${move(-1)} disabled=${index <= 0}>‹</button>
      <select aria-label="step" value=${step} onChange=${(e: Event) => go(withQuery({ step: (e.target as HTMLSelectElement).value }))}>${numbers.map(one => html`<option value=${String(one)}>step ${one}</option>`)}</select>
      <button type="button" onClick=${move(1)} disabled=${index < 0 || index >= numbers.length - 1}>›</button>
      <label>order <select value=${order} onChange=${(e: Event) => go(withQuery({ order: (e.target as HTMLSelectElement).value }))}><option value="start">by start</option><option value="length">by duration</option><option value="reward">by reward</option></select></label>
      <${Legend} /></div>
    ${
      value === undefined
        ? failure === undefined
          ? html`<${Waiting} />`
          : html`<${Refused} failure=${failure} />`
        : html`<${Canvas} run=${run} lanes=${value} order=${order} />
      ${value.total > value.rows.length ? html`<p class="dim">the first ${value.rows.length} of ${number(value.total)} trajectories</p>` : null}<${CopyCommand} command=${value.command} />`
    }`
}

const Legend = () =>
  html`<span class="legend">${['queue', 'generation', 'tool', 'judge', 'wait', 'fault'].map(kind => html`<span><i class=${kind}></i>${kind}</span>`)}</span>`

const spanOf = ({ pieces, endsAt }: Lane): number => endsAt - (pieces[0]?.from ?? endsAt)

function ordered(rows: readonly Lane[], order: Order): readonly Lane[] {
  if (order === 'length') return [...rows].sort((a, b) => spanOf(b) - spanOf(a))
  if (order === 'reward') return [...rows].sort((a, b) => byReward(a.reward, b.reward))
  return [...rows].sort((a, b) => (a.pieces[0]?.from ?? 0) - (b.pieces[0]?.from ?? 0))
}

function Canvas({ run, lanes, order }: { readonly run: string; readonly lanes: Lanes; readonly order: Order }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const picture = useRef<Picture | undefined>(undefined)
  const [hint, show] = useState('')
  const shown = theme.value
  const rows = ordered(lanes.rows, order)
  useEffect(() => {
    const element = canvas.current
    if (element === null) return
    const draw = () => {
      picture.current = pictureOf(rows, lanes.marks, element.clientWidth)
      drawLanes(element, picture.current, colour)
    }
    draw()
    const observer = new ResizeObserver(draw)
    observer.observe(element)
    return () => observer.disconnect()
  }, [lanes, order, shown])
  const onMove = (event: MouseEvent) => {
    const found = picture.current === undefined ? undefined : laneAt(picture.current, event.offsetX, event.offsetY)
    show(
      found === undefined
        ? ''
        : `${found.lane.trajectory}${found.piece === undefined ? '' : `: ${words(found.piece)}`}`,
    )
  }
  const onClick = (event: MouseEvent) => {
    const found = picture.current === undefined ? undefined : laneAt(picture.current, event.offsetX, event.offsetY)
    if (found !== undefined) go(trajectoryLink(run, found.lane.trajectory))
  }
  const height = laneTop + rows.length * laneHeight + 8
  return html`<p class="hint" role="status">${hint === '' ? 'point at a lane to read it, click to open it' : hint}</p>
    <canvas class="lanes" ref=${canvas} style=${{ height: `${height}px` }} onMouseMove=${onMove} onClick=${onClick} role="img" aria-label=${`timeline of ${rows.length} trajectories`}></canvas>`
}

const words = ({ kind, from, to, version, bad }: LanePiece): string =>
  `${kind} ${milliseconds(to - from)}${version === null ? '' : `, policy ${version}`}${bad ? ', failed' : ''}`
