/**
 * Chart of one measure over the steps of one or several runs: values as dots, their moving average as a line.
 *
 * in   values by step, the smoothing        out  a chart; a click names the step
 * Invariant: all charts of a page share their cursor, so that one step is read across them.
 */
import type { VNode } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import { number, percent } from '../format'
import { html } from '../html'
import { colour, theme } from './theme'
import { valueRange } from './valueRange'

export interface Curve {
  readonly run: string
  readonly points: readonly { readonly step: number; readonly value: number | null }[]
}

export interface ChartProps {
  readonly title: string
  readonly hint: string
  readonly curves: readonly Curve[]
  /** Weight of the older values in the moving average, from 0 (no smoothing) to less than 1. */
  readonly smoothing: number
  readonly format?: (value: number | null) => string
  readonly onStep: (step: number) => void
}

const height = 150

export function Chart({ title, hint, curves, smoothing, format = number, onStep }: ChartProps): VNode {
  const holder = useRef<HTMLDivElement>(null)
  const latest = curves[0]?.points.findLast(point => point.value !== null)?.value ?? null
  const shown = theme.value
  const key = JSON.stringify([curves, smoothing, shown])
  useEffect(() => {
    const element = holder.current
    if (element === null) return
    const chart = new uPlot(
      optionsOf(curves, smoothing, element.clientWidth, format),
      dataOf(curves, smoothing),
      element,
    )
    const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    const click = () => {
      const index = chart.cursor.idx
      const step = index === null || index === undefined ? undefined : chart.data[0][index]
      if (step !== undefined) onStep(step)
    }
    chart.over.addEventListener('click', click)
    return () => {
      observer.disconnect()
      chart.destroy()
    }
  }, [key])
  return html`<figure class="chart">
    <figcaption title=${hint}><span>${title}</span><b>${format(latest)}</b></figcaption>
    <div ref=${holder} role="img" aria-label=${`${title} by step, latest ${format(latest)}`}></div>
  </figure>`
}

const colours = ['accent', 'second', 'third', 'fourth']

function dataOf(curves: readonly Curve[], smoothing: number): uPlot.AlignedData {
  const steps = [...new Set(curves.flatMap(({ points }) => points.map(point => point.step)))].sort((a, b) => a - b)
  const series = curves.flatMap(({ points }) => {
    const byStep = new Map(points.map(point => [point.step, point.value]))
    const values = steps.map(step => byStep.get(step) ?? null)
    return [values, averaged(values, smoothing)]
  })
  return [steps, ...series]
}

/** Exponential moving average, corrected for its start. */
function averaged(values: readonly (number | null)[], weight: number): (number | null)[] {
  let sum = 0
  let whole = 0
  return values.map(value => {
    if (value === null) return null
    sum = weight * sum + (1 - weight) * value
    whole = weight * whole + (1 - weight)
    return sum / whole
  })
}

function optionsOf(
  curves: readonly Curve[],
  smoothing: number,
  width: number,
  format: (value: number | null) => string,
): uPlot.Options {
  const axis = {
    stroke: colour('dim'),
    grid: { stroke: colour('line'), width: 1 },
    ticks: { show: false },
    font: '11px system-ui',
  }
  return {
    ...{ width: Math.max(80, width), height, padding: [8, 8, 0, 0] },
    legend: { show: false },
    cursor: { sync: { key: 'steps' }, y: false, points: { size: 6 } },
    scales: {
      x: { time: false, range: (_, min, max) => (min === max ? [min - 1, max + 1] : [min, max]) },
      y: { range: (_, min, max) => valueRange(min, max, format === percent) },
    },
    axes: [
      { ...axis, size: 24, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(tick => format(tick)) },
    ],
    series: [
      { label: 'step' },
      ...curves.flatMap(({ run }, i): uPlot.Series[] => {
        const stroke = colour(colours[i % colours.length]!)
        return [
          {
            label: run,
            stroke: 'transparent',
            points: { show: true, size: 4, fill: stroke, stroke: 'transparent' },
          },
          {
            label: `${run}, smoothed`,
            stroke,
            width: smoothing > 0 ? 2 : 1.5,
            points: { show: false },
            spanGaps: true,
          },
        ]
      }),
    ],
  }
}
