/**
 * Metrics of the running process in Prometheus's format. The only file that imports prom-client, which loads with the
 * first registry.
 *
 * in   counts, durations and current values, by name and labels     out  `render()`: the text of a scrape
 * Invariant: a name is registered once; a second registration returns the same series. Callers use labels with few
 * values, such as actors, engines and reasons; never trajectories. This file does not check that.
 */
import type { Registry } from 'prom-client'

export type Labels = Readonly<Record<string, string>>

export interface Counter {
  add(labels: Labels, amount?: number): void
}

export interface Gauge {
  set(labels: Labels, value: number): void
}

export interface Histogram {
  observe(labels: Labels, value: number): void
}

/** One value of a gauge, with its labels, when metrics are scraped. */
export interface Reading {
  readonly labels: Labels
  readonly value: number
}

export interface MetricsRegistry {
  counter(name: string, help: string, labels?: readonly string[]): Counter
  /** Registers a gauge. @param read called at every scrape; its readings replace all values */
  gauge(name: string, help: string, labels?: readonly string[], read?: () => readonly Reading[]): Gauge
  histogram(name: string, help: string, labels: readonly string[], buckets: readonly number[]): Histogram
  /** Registers metrics of the process: CPU, memory, event loop delay. */
  processMetrics(): void
  /** Returns the metrics in Prometheus's text exposition format. */
  render(): Promise<string>
  readonly contentType: string
}

export function createMetrics(): MetricsRegistry {
  const prom = require('prom-client') as typeof import('prom-client')
  const registry: Registry = new prom.Registry()
  const made = new Map<string, unknown>()
  const once = <T>(name: string, make: () => T): T => {
    const known = made.get(name)
    if (known !== undefined) return known as T
    const fresh = make()
    made.set(name, fresh)
    return fresh
  }
  return {
    counter: (name, help, labels = []) =>
      once(name, () => {
        const counter = new prom.Counter({ name, help, labelNames: [...labels], registers: [registry] })
        return { add: (values, amount = 1) => counter.inc(values, amount) }
      }),
    gauge: (name, help, labels = [], read) =>
      once(name, () => {
        const gauge = new prom.Gauge({
          name,
          help,
          labelNames: [...labels],
          registers: [registry],
          ...(read && {
            collect() {
              this.reset()
              for (const reading of read()) this.set(reading.labels, reading.value)
            },
          }),
        })
        return { set: (values, value) => gauge.set(values, value) }
      }),
    histogram: (name, help, labels, buckets) =>
      once(name, () => {
        const histogram = new prom.Histogram({
          name,
          help,
          labelNames: [...labels],
          buckets: [...buckets],
          registers: [registry],
        })
        return { observe: (values, value) => histogram.observe(values, value) }
      }),
    processMetrics() {
      once('process', () => {
        prom.collectDefaultMetrics({ register: registry })
        return true
      })
    },
    render: () => registry.metrics(),
    contentType: registry.contentType,
  }
}
