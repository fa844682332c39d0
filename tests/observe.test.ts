/**
 * The dashboard and the alert rules that Compose provisions, and docs/metrics.md, against the metrics that the code exports:
 * a name or a label that does not exist would show as an empty panel, or as an alert that never fires.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { runMetrics } from '../cli/train/metrics'
import { instruments } from '../runtime/actor/instruments'
import { createMetrics, type MetricsRegistry } from '../runtime/metrics'
import { composeFile, composeRoot, mountsOf } from './support/composeFile'

const read = (file: string) => readFileSync(join(composeRoot, file), 'utf8')
const board = JSON.parse(read('deploy/grafana/troupe.json'))
const expressions: readonly { readonly where: string; readonly text: string; readonly legend: string }[] = [
  ...board.panels.flatMap((panel: { title: string; targets: { expr: string; legendFormat: string }[] }) =>
    panel.targets.map(({ expr, legendFormat }) => ({ where: panel.title, text: expr, legend: legendFormat })),
  ),
  ...parse(read('deploy/prometheus/rules.yml')).groups[0].rules.map(
    (rule: { alert: string; expr: string; annotations: object }) => ({
      ...{ where: rule.alert, text: rule.expr, legend: Object.values(rule.annotations).join(' ') },
    }),
  ),
]

/** Kind and labels of every metric of ours, by name, as the code registers them. */
function exported(): ReadonlyMap<string, { readonly kind: string; readonly labels: readonly string[] }> {
  const found = new Map<string, { kind: string; labels: readonly string[] }>()
  const real = createMetrics()
  const noting =
    (kind: 'counter' | 'gauge' | 'histogram') =>
    (name: string, help: string, labels: readonly string[] = [], more?: unknown) => {
      found.set(name, { kind, labels })
      return real[kind](name, help, labels, more as never) as never
    }
  const registry: MetricsRegistry = {
    ...real,
    ...{ counter: noting('counter'), gauge: noting('gauge'), histogram: noting('histogram') },
  }
  runMetrics(registry)
  instruments(registry)
  return found
}

/** Names of the series in a PromQL expression, with the labels that stand in it. */
function namesIn(expression: string): { readonly metrics: readonly string[]; readonly labels: readonly string[] } {
  const labels: string[] = []
  const rest = expression
    .replaceAll(/\{([^}]*)\}/g, (_, matchers: string) => {
      labels.push(...[...matchers.matchAll(/(\w+)\s*[=!]/g)].map(([, label]) => label!))
      return ''
    })
    .replaceAll(/\b(?:by|on|without|ignoring)\s*\(([^)]*)\)/g, (_, list: string) => {
      labels.push(...list.split(',').map(label => label.trim()))
      return ''
    })
    .replaceAll(/\[[^\]]*\]|\boffset\s+\w+/g, '')
  const metrics = [...rest.matchAll(/\b[a-z_][\w:]*\b(?!\s*\()/g)].map(([name]) => name)
  return { metrics: [...new Set(metrics)], labels }
}

test('every metric and label of the dashboard and of the alert rules is one that the code exports', async () => {
  const ours = exported()
  const registry = createMetrics()
  registry.processMetrics()
  const ofProcess = [...(await registry.render()).matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name!)
  const ofPrometheus = ['job', 'instance']
  for (const { where, text, legend } of expressions) {
    const { metrics, labels } = namesIn(text)
    expect({ where, count: metrics.length }).not.toEqual({ where, count: 0 })
    const known = metrics.map(name => {
      const base = name.replace(/_(bucket|count|sum)$/, '')
      if (ours.get(base)?.kind === 'histogram')
        return { name, labels: [...ours.get(base)!.labels, ...(name.endsWith('_bucket') ? ['le'] : [])] }
      if (ours.has(name)) return { name, labels: ours.get(name)!.labels }
      return name === 'up' || ofProcess.includes(name) ? { name, labels: [] } : { name: 'unknown', labels: [] }
    })
    expect({ where, metrics: known.map(({ name }) => name) }).toEqual({ where, metrics })
    const all = [...ofPrometheus, ...known.flatMap(each => each.labels)]
    const shown = [...legend.matchAll(/\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}/g)].map(([, label]) => label!)
    const unknown = [...labels, ...shown].filter(label => label !== 'value' && !all.includes(label))
    expect({ where, unknown }).toEqual({ where, unknown: [] })
  }
  expect(expressions.length).toBeGreaterThan(30)
})

test('docs/metrics.md names every metric of ours, with its kind and labels, and no other', () => {
  const rows = [...read('docs/metrics.md').matchAll(/^\| `(troupe_\w+)`\s*\| (\w+)\s*\| ([^|]*)\|/gm)]
  const written = rows.map(([, name, kind, labels]) => [
    name,
    { kind, labels: [...labels!.matchAll(/`(\w+)`/g)].map(([, label]) => label) },
  ])
  expect(Object.fromEntries(written)).toEqual(Object.fromEntries(exported()))
})

test('Grafana and Prometheus find the files where their settings look for them', () => {
  const { grafana, prometheus } = composeFile().services
  const targets = (service = grafana) =>
    mountsOf(service!).map(({ source, target, isReadOnly }) => {
      expect(isReadOnly).toBe(true)
      return [source, target]
    })
  const [{ options }] = parse(read('deploy/grafana/dashboards.yml')).providers
  expect(targets()).toContainEqual(['./deploy/grafana/troupe.json', `${options.path}/troupe.json`])
  const [rules] = parse(read('deploy/prometheus/prometheus.yml')).rule_files
  expect(targets(prometheus)).toContainEqual(['./deploy/prometheus/rules.yml', `/etc/prometheus/${rules}`])
  const source = parse(read('deploy/grafana/datasource.yml')).datasources[0].uid
  for (const panel of board.panels)
    for (const target of panel.targets) expect([panel.datasource.uid, target.datasource.uid]).toEqual([source, source])
})
