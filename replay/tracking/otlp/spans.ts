/**
 * Spans of OpenTelemetry from the facts of `trajectories`: a trace for each rollout.
 *
 * in   facts in the order of their partition        out  spans, each once it is over
 * `invoke_agent` is the rollout; in it are `chat` for each generation (in a captured session, each call: the turns by
 * which the run answered the calls have no spans of their own), `execute_tool` for each tool call and `evaluate`
 * for the judge's work. Attributes have the names of the GenAI conventions in version 1.38.0 (`schemaUrl`), or names in
 * `troupe.*`.
 * Invariant: ids are digests of the run and of the fact's id, so a second export has the same ids. The state of a
 * rollout is dropped once the rollout is judged or its group is closed; later facts of that rollout produce no spans.
 */
import { createHash } from 'node:crypto'
import type { Fact, RunStarted } from '../../../messages/facts'

export const schemaUrl = 'https://opentelemetry.io/schemas/1.38.0'

export type Attribute = string | number | boolean | readonly string[]

export interface Span {
  /** Id of the trace, 16 bytes. */
  readonly trace: Buffer
  /** Id of the span, 8 bytes. */
  readonly id: Buffer
  readonly parent?: Buffer
  readonly name: string
  readonly kind: 'internal' | 'client'
  /** Time at which the span starts, ms since 1970. */
  readonly startedAt: number
  /** Time at which the span ends, ms since 1970. */
  readonly endedAt: number
  /** Attributes whose value is undefined are left out. */
  readonly attributes: Readonly<Record<string, Attribute | undefined>>
  /** Message of the failure; absent: the span did not fail. */
  readonly error?: string
}

export interface SpanOptions {
  /** True: spans carry prompts, answers, arguments and results. */
  readonly content: boolean
}

interface Open {
  readonly startedAt: number
  readonly prompt: string | undefined
  readonly attributes: Span['attributes']
  /** Requests of turns, tools and calls that have no answer yet, by the answer's id. */
  readonly asked: Map<string, { readonly at: number; readonly attributes: Span['attributes'] }>
  finishedAt?: number
  /** True for a captured session: its generations are its agent's calls. */
  isCaptured?: true
}

/** Returns a function that takes the next fact and returns the spans that it ends. */
export function spansOf(run: string, { recipe }: Pick<RunStarted, 'recipe'>, { content }: SpanOptions) {
  const open = new Map<string, Open>()
  const { model, engine, name: agent } = recipe as Readonly<Record<string, unknown>>
  const modelName = nameOfModel(model)
  const provider = String((engine as { readonly kind?: unknown } | undefined)?.kind ?? 'troupe')
  const kept = (value: unknown) => (content ? (typeof value === 'string' ? value : JSON.stringify(value)) : undefined)
  const said = (role: string, text: string) => kept([{ role, parts: [{ type: 'text', content: text }] }])

  function span(trajectory: string, id: string, body: Omit<Span, 'trace' | 'id' | 'parent'>): Span {
    const own = digest(8, run, trajectory, id)
    const parent = id === 'rollout' ? {} : { parent: digest(8, run, trajectory, 'rollout') }
    const common = { 'gen_ai.conversation.id': trajectory, 'troupe.run': run }
    const attributes = { ...common, ...body.attributes }
    return { trace: digest(16, run, trajectory), id: own, ...parent, ...body, attributes }
  }

  /** Span of a generation: a turn of the run's own loop, or a call of an agent through the gateway. */
  function chat(fact: Generated, id: string, request: Span['attributes'], error: string): Span {
    const { trajectory, timing, segments } = fact
    const versions = segments.map(({ policyVersion }) => policyVersion)
    return span(trajectory, id, {
      name: `chat ${modelName}`,
      kind: 'client',
      startedAt: timing?.queuedAt ?? fact.at,
      endedAt: timing?.endedAt ?? fact.at,
      attributes: {
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': provider,
        'gen_ai.request.model': modelName,
        'gen_ai.usage.output_tokens': fact.tokens.length,
        'gen_ai.response.finish_reasons': [error === '' ? (fact.finish ?? 'stop') : 'error'],
        'gen_ai.output.messages': fact.text === undefined ? undefined : said('assistant', fact.text),
        'troupe.engine': fact.engine,
        'troupe.cached_tokens': fact.cachedTokens,
        'troupe.preemptions': fact.preemptions,
        'troupe.policy_version': versions[0],
        'troupe.policy_version.last': versions.at(-1),
        'troupe.queued_ms': timing && timing.startedAt - timing.queuedAt,
        'troupe.first_token_ms': timing && timing.firstTokenAt - timing.startedAt,
        ...request,
      },
      ...(error === '' ? {} : { error }),
    })
  }

  return function take(fact: Fact): readonly Span[] {
    if (fact.type === 'group.closed') {
      for (const id of open.keys()) if (id.startsWith(`${fact.group}/`)) open.delete(id)
      return []
    }
    if (!('trajectory' in fact)) return []
    const rollout = open.get(fact.trajectory)
    if (fact.type === 'rollout.requested') {
      if (rollout !== undefined) return []
      const { at: startedAt, trajectory, group, purpose, step, task, tools } = fact
      const messages = task.messages.map(({ role, content: text }) => ({
        role,
        parts: [{ type: 'text', content: text }],
      }))
      const own = { group, purpose, step, task: task.id, tools: tools.length === 0 ? undefined : tools }
      open.set(trajectory, { startedAt, prompt: kept(messages), attributes: named('troupe', own), asked: new Map() })
      return []
    }
    if (rollout === undefined) return []
    const { trajectory, at } = fact
    const ask = (id: string, attributes: Span['attributes']): readonly Span[] => {
      rollout.asked.set(id, { at, attributes })
      return []
    }
    /** Removes and returns the request that an answer belongs to. */
    const answered = (id: string) => {
      const found = rollout.asked.get(id) ?? { at, attributes: {} }
      rollout.asked.delete(id)
      return found
    }
    switch (fact.type) {
      case 'session.opened':
        rollout.isCaptured = true
        return []
      case 'turn.asked':
        if (rollout.isCaptured) return []
        return ask(`turn#${fact.turn}#${fact.attempt}`, { ...requestOf(fact), 'troupe.turn': fact.turn })
      case 'call.started':
        return ask(`call#${fact.call}#${fact.attempt}`, {
          ...requestOf(fact),
          'gen_ai.request.model': fact.model,
          'gen_ai.input.messages': kept(fact.messages),
          'troupe.call': fact.call,
          'troupe.dialect': fact.dialect,
        })
      case 'turn.completed':
      case 'turn.interrupted': {
        if (rollout.isCaptured) return []
        const id = `turn#${fact.turn}#${fact.attempt}`
        const request = answered(id)
        const error = fact.type === 'turn.completed' ? '' : fact.error || fact.reason
        const generated: Generated = fact
        const timing = generated.timing ?? {
          queuedAt: request.at,
          startedAt: request.at,
          firstTokenAt: request.at,
          endedAt: at,
        }
        return [chat({ ...generated, timing }, id, request.attributes, error)]
      }
      case 'call.finished': {
        const id = `call#${fact.call}#${fact.attempt}`
        const failed = fact.finish === 'failed' ? fact.error || 'failed' : ''
        return [chat(fact, id, answered(id).attributes, failed)]
      }
      case 'tool.asked':
        return ask(`tool#${fact.turn}#${fact.call}#${fact.attempt}`, {
          'gen_ai.tool.call.arguments': kept(fact.arguments),
        })
      case 'tool.completed': {
        const id = `tool#${fact.turn}#${fact.call}#${fact.attempt}`
        const request = answered(id)
        const attributes = {
          'gen_ai.operation.name': 'execute_tool',
          'gen_ai.tool.name': fact.tool,
          'gen_ai.tool.type': 'function',
          'gen_ai.tool.call.id': `${trajectory}#${fact.turn}#tool#${fact.call}`,
          'gen_ai.tool.call.result': kept(fact.text),
          'rl.reward.run.code': fact.status,
          'troupe.turn': fact.turn,
          'troupe.executor': fact.executor ?? undefined,
          'troupe.cpu_ms': fact.cpuMs,
          'troupe.wall_ms': fact.wallMs,
          'troupe.exit_code': fact.exitCode ?? undefined,
          ...request.attributes,
        }
        const body = {
          name: `execute_tool ${fact.tool}`,
          kind: 'internal' as const,
          startedAt: request.at,
          endedAt: at,
        }
        return [span(trajectory, id, { ...body, attributes, ...(fact.status === 'ok' ? {} : { error: fact.status }) })]
      }
      case 'rollout.finished': {
        if (rollout.finishedAt !== undefined) return []
        rollout.finishedAt = at
        const attributes = {
          'gen_ai.operation.name': 'invoke_agent',
          'gen_ai.agent.name': String(agent ?? 'troupe'),
          'gen_ai.provider.name': provider,
          'gen_ai.request.model': modelName,
          'gen_ai.usage.output_tokens': fact.sampledTokens,
          'gen_ai.input.messages': rollout.prompt,
          'troupe.outcome': fact.outcome,
          'troupe.turns': fact.turns,
          'troupe.tool_calls': fact.toolCalls,
          'troupe.tool_errors': fact.toolErrors,
          ...rollout.attributes,
        }
        const body = {
          name: `invoke_agent ${agent}`,
          kind: 'internal' as const,
          startedAt: rollout.startedAt,
          endedAt: at,
        }
        const error = fact.outcome === 'failed' ? { error: fact.reason } : {}
        return [span(trajectory, 'rollout', { ...body, attributes, ...error })]
      }
      case 'reward.assigned':
      case 'reward.failed': {
        open.delete(trajectory)
        const isScored = fact.type === 'reward.assigned'
        const attributes = {
          'gen_ai.evaluation.name': fact.how,
          'gen_ai.evaluation.score.value': isScored ? fact.reward : undefined,
          'gen_ai.evaluation.explanation': fact.why ? kept(fact.why) : undefined,
          'rl.reward.score': isScored ? fact.reward : undefined,
        }
        const body = { name: 'evaluate', kind: 'internal' as const, startedAt: rollout.finishedAt ?? at, endedAt: at }
        return [span(trajectory, 'reward', { ...body, attributes, ...(isScored ? {} : { error: fact.how }) })]
      }
      default:
        return []
    }
  }
}

/** Fields that `turn.completed`, `turn.interrupted` and `call.finished` share. */
interface Generated {
  readonly at: number
  readonly trajectory: string
  readonly engine: string
  readonly tokens: Int32Array
  readonly segments: readonly { readonly policyVersion: number }[]
  readonly timing?: {
    readonly queuedAt: number
    readonly startedAt: number
    readonly firstTokenAt: number
    readonly endedAt: number
  }
  readonly finish?: string
  readonly text?: string
  readonly cachedTokens?: number
  readonly preemptions?: number
}

interface Requested {
  readonly sampling: { readonly temperature: number; readonly topP: number; readonly topK: number }
  readonly maxTokens: number
  readonly contextTokens: number
  readonly seed: number
  readonly attempt: number
}

const requestOf = ({ sampling, maxTokens, contextTokens, seed, attempt }: Requested): Span['attributes'] => ({
  'gen_ai.request.temperature': sampling.temperature,
  'gen_ai.request.top_p': sampling.topP,
  'gen_ai.request.top_k': sampling.topK === 0 ? undefined : sampling.topK,
  'gen_ai.request.max_tokens': maxTokens,
  'gen_ai.request.seed': seed,
  'gen_ai.usage.input_tokens': contextTokens,
  'troupe.attempt': attempt,
})

function nameOfModel(model: unknown): string {
  const { path, config } = (model ?? {}) as {
    readonly path?: string
    readonly config?: { readonly model_type?: string }
  }
  return path?.split('/').filter(Boolean).at(-1) ?? config?.model_type ?? 'model'
}

const named = (prefix: string, values: Readonly<Record<string, Attribute | undefined>>): Span['attributes'] =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}.${name}`, value]))

const digest = (bytes: number, ...parts: readonly string[]): Buffer =>
  createHash('sha256').update(JSON.stringify(parts)).digest().subarray(0, bytes)
