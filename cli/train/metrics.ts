/**
 * Serves a run's metrics for Prometheus: engines, turns, tools, rollouts, groups, steps, evaluations, alarms, training,
 * and those of the actors and of this process.
 *
 * in   a run's facts, KV telemetry of engines and scheduler        out  `GET /metrics` in the text exposition format
 * Invariant: it listens on loopback unless another host is named. It serves numbers and names (of engines, tools,
 * actors), no text of a model or tool, so beyond loopback it asks for no token.
 */
import { knownAlarms } from '../../config'
import type { EngineTelemetry } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import { createMetrics, type MetricsRegistry } from '../../runtime/metrics'
import { boundedServer, type Handler } from '../../sandbox/http/boundedServer'
import { hostCheck } from '../../sandbox/http/hostHeader'
import { requestTarget } from '../../sandbox/http/requestTarget'
import type { ListenAddress } from '../options/readers'

export interface MetricsServer {
  readonly registry: MetricsRegistry
  close(): void
}

/** Upper bound on open connections: a few collectors, each with one or two. */
const maxConnections = 64

/** Starts the metrics server; without an address nothing is served. @throws TroupeError cli.port_taken */
export async function serveMetrics(listen: ListenAddress | undefined): Promise<MetricsServer> {
  const registry = createMetrics()
  if (listen === undefined) return { registry, close: () => {} }
  registry.processMetrics()
  const { host, port } = listen
  const isOurs = hostCheck(host)
  const shown = host.includes(':') ? `[${host}]` : host
  const answer: Handler = async (request, response) => {
    if (!isOurs(request.headers.host)) return response.writeHead(421).end()
    if (requestTarget(request.url).path !== '/metrics') return response.writeHead(404).end('metrics are at /metrics\n')
    const text = await registry.render()
    return response.writeHead(200, { 'content-type': registry.contentType }).end(text)
  }
  const server = boundedServer(answer, { maxConnections })
  await new Promise<void>((resolve, reject) => {
    server.once('error', cause =>
      reject(
        new TroupeError('cli.port_taken', {
          boundary: 'cli',
          retriable: false,
          message: `metrics cannot be served on ${shown}:${port}: ${cause.message}`,
          hint: 'choose another --metrics port (0 takes a free one), or an address of this host',
          cause,
        }),
      ),
    )
    server.listen(port, host, resolve)
  })
  const address = server.address()
  if (address !== null && typeof address === 'object') {
    process.stderr.write(`metrics: http://${shown}:${address.port}/metrics\n`)
  }
  return { registry, close: () => void server.close().closeAllConnections() }
}

const secondsBuckets = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100]

/** Registers a run's metrics. Returns the function that updates them from each message. */
export function runMetrics(registry: MetricsRegistry): (message: Fact | EngineTelemetry) => void {
  const kv = registry.gauge('troupe_engine_kv_tokens', 'KV cache by state, in tokens.', ['engine', 'state'])
  const drift = registry.gauge(
    'troupe_ledger_drift_tokens',
    "KV tokens in use as the engine reports them, minus those in the scheduler's ledger.",
    ['engine'],
  )
  const foreign = registry.gauge('troupe_ledger_foreign_tokens', 'KV tokens in use by requests of other clients.', [
    'engine',
  ])
  const requests = registry.gauge('troupe_engine_requests', 'Requests of the engine by state.', ['engine', 'state'])
  const preemptions = registry.gauge('troupe_engine_preemptions', 'Preemptions since the engine started.', ['engine'])
  const tokens = registry.counter('troupe_sampled_tokens_total', 'Tokens that the engine sampled.', ['engine'])
  const turns = registry.histogram(
    'troupe_turn_seconds',
    'Seconds of a turn, queueing included.',
    ['engine'],
    secondsBuckets,
  )
  const tools = registry.histogram('troupe_tool_seconds', 'Seconds of a tool call.', ['tool', 'status'], secondsBuckets)
  const rollouts = registry.counter('troupe_rollouts_total', 'Rollouts by outcome.', ['outcome'])
  const groups = registry.counter('troupe_groups_total', 'Groups by decision.', ['decision'])
  const step = registry.gauge('troupe_step', 'Steps completed.')
  const solved = registry.gauge('troupe_evaluation_pass_at_1', 'Pass@1 of the last evaluation, by its name.', [
    'evaluation',
  ])
  const alarms = registry.counter('troupe_alarms_total', 'Alarms of the run, by name.', ['alarm'])
  // Each known alarm's series begins at 0, since Prometheus sees no increase in a series that begins at its first
  // alarm.
  for (const alarm of knownAlarms) alarms.add({ alarm }, 0)
  const training = registry.gauge('troupe_training', 'Metrics of the last training step.', ['metric'])
  return message => {
    switch (message.type) {
      case 'engine.status': {
        const { engine } = message
        kv.set({ engine, state: 'capacity' }, message.kvTokens)
        kv.set({ engine, state: 'referenced' }, message.referencedTokens)
        kv.set({ engine, state: 'cached' }, message.cachedTokens)
        requests.set({ engine, state: 'running' }, message.running)
        requests.set({ engine, state: 'waiting' }, message.waiting)
        preemptions.set({ engine }, message.preemptions)
        return
      }
      case 'ledger.status': {
        const { engine, driftTokens, foreignTokens } = message
        drift.set({ engine }, driftTokens)
        foreign.set({ engine }, foreignTokens)
        return
      }
      case 'turn.completed':
        tokens.add({ engine: message.engine }, message.tokens.length)
        turns.observe({ engine: message.engine }, (message.timing.endedAt - message.timing.queuedAt) / 1000)
        return
      case 'tool.completed':
        tools.observe(
          { tool: message.executor === null ? '' : message.tool, status: message.status },
          message.wallMs / 1000,
        )
        return
      case 'rollout.finished':
        rollouts.add({ outcome: message.outcome })
        return
      case 'group.selected':
      case 'group.rejected':
        groups.add({ decision: message.type.slice('group.'.length) })
        return
      case 'step.completed':
        step.set({}, message.step)
        for (const [metric, value] of Object.entries(message.metrics)) training.set({ metric }, value)
        return
      case 'evaluation.completed':
        if (message.n > 0) solved.set({ evaluation: message.name }, message.passAt1)
        return
      case 'alarm.raised':
        alarms.add({ alarm: message.alarm })
        return
    }
  }
}
