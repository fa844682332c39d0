/**
 * The sessions API: `/troupe/v1/sessions` and what lies below it.
 *
 * in   requests of the program that starts agents and rewards them, or of an agent
 * out  facts, through `Sessions`; trees, rows and events of a session
 * Invariant: a session's key suffices to reward, end and read this session. Listing, opening and forking sessions needs
 * the gateway's key, if the gateway has one.
 */
import type { ServerResponse } from 'node:http'
import { z } from 'zod'
import { callRows, counts, pathTo } from '../../kernels'
import { factKey } from '../../messages'
import type { Fact } from '../../messages/facts'
import { writeAndDrain } from '../../sandbox/http/backpressure'
import { checked } from '../dialects/dialect'
import { invalid } from '../gatewayError'
import { answerTo, callOf, messagesOf, type SessionState } from '../session/session'
import type { Opened } from '../session/sessionOptions'
import type { Sessions } from '../session/sessions'
import { sendJson } from './exchange'

const openBody = z.strictObject({
  id: z.string().optional(),
  group: z.string().optional(),
  slot: z.int().nonnegative().optional(),
  group_size: z.int().positive().max(4096).optional(),
  task: z
    .strictObject({
      id: z.string().optional(),
      truth: z.string().optional(),
      reward: z.string().optional(),
      metadata: z.record(z.string(), z.unknown()).optional(),
    })
    .optional(),
  policy: z.enum(['train', 'eval']).optional(),
  parent: z.string().optional(),
  ttl_s: z
    .number()
    .positive()
    .max(30 * 24 * 3600)
    .optional(),
})

/** Opens a session from a request's body. */
export async function openFrom(sessions: Sessions, body: unknown): Promise<Opened> {
  const { group_size: groupSize, ttl_s: ttl, id, group, slot, task, policy, parent } = checked(openBody, body)
  return sessions.open({
    ...(id === undefined ? {} : { id }),
    ...(group === undefined ? {} : { group }),
    ...(slot === undefined ? {} : { slot }),
    ...(groupSize === undefined ? {} : { groupSize }),
    ...(task === undefined ? {} : { task: task as NonNullable<Parameters<Sessions['open']>[0]['task']> }),
    ...(policy === undefined ? {} : { policy }),
    ...(parent === undefined ? {} : { parent }),
    ...(ttl === undefined ? {} : { ttlMs: ttl * 1000 }),
  })
}

/** Answer to the client that opened a session: the key, and the environment variables that an agent needs. */
export function openedBody({ session, opening, key, expiresAt }: Opened, url: string) {
  return {
    ...{ id: session.id, epoch: opening, key, expires_at: new Date(expiresAt).toISOString() },
    env: { OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: key, ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: key },
  }
}

const rewardBody = z.strictObject({
  value: z.number(),
  components: z.record(z.string(), z.number()).optional(),
  call_id: z.string().optional(),
  key: z.string().optional(),
})

export async function rewardFrom(sessions: Sessions, session: SessionState, body: unknown): Promise<object> {
  const { value, key, ...rest } = checked(rewardBody, body)
  const why = Object.keys(rest).length === 0 ? '' : JSON.stringify(rest)
  await sessions.reward(session, value, key ?? 'given', why)
  return { id: session.id, reward: value }
}

const endBody = z.strictObject({
  outcome: z.enum(['done', 'failed', 'timeout', 'cancelled']).default('done'),
  reason: z.string().default(''),
})

export async function endFrom(sessions: Sessions, session: SessionState, body: unknown): Promise<object> {
  const { outcome, reason } = checked(endBody, body)
  await sessions.end(session, outcome, reason)
  return stateOf(session)
}

export const stateOf = ({ id, request, calls, ended, reward }: SessionState) => ({
  ...{ id, group: request.group, slot: request.member, policy: request.purpose, epoch: calls.tree.opened!.opening },
  ...{
    calls: calls.tree.nodes.size,
    reward: reward?.reward ?? null,
    outcome: ended?.outcome ?? null,
    reason: ended?.reason ?? null,
  },
})

/** Describes the session's calls as a tree, and the training rows that are made of them. */
export function treeOf(session: SessionState) {
  const { tree } = session.calls
  const nodes = [...tree.nodes.values()].map(({ started, finished, delivered, children }) => ({
    ...{
      call: started.call,
      parent: started.parent,
      branch: started.branch,
      label: started.label,
      dialect: started.dialect,
    },
    ...{ model: started.model, attempt: started.attempt, children, delivered, counts: counts(tree, started.call) },
    ...{ context_tokens: started.contextTokens, new_tokens: started.tokens.length, messages: messagesOf(started) },
    state: finished === null ? 'running' : finished.finish,
    ...(finished === null
      ? {}
      : {
          sampled_tokens: finished.tokens.length,
          answer: answerTo(session, started.call),
          error: finished.error || undefined,
        }),
  }))
  const rows = callRows(tree).map(({ calls, leaf, tokens, sampledTokens, oldestVersion }) => ({
    ...{ calls, leaf, tokens: tokens.length, sampled_tokens: sampledTokens, oldest_version: oldestVersion },
  }))
  return { ...stateOf(session), nodes, rows }
}

const forkBody = z.strictObject({ call_id: z.union([z.string(), z.int().nonnegative()]) })

/** Number of the call that `call_id` names: its number in this session, or the id of its answer in any dialect. */
const callNamed = (session: SessionState, named: string | number): number | undefined =>
  /^\d+$/.test(`${named}`)
    ? Number(named)
    : callOf(session, `${named}`.replace(/^(chatcmpl-|cmpl-|msg_|resp_|rs_)/, ''))

/**
 * Opens a session that begins with copies of another session's calls, up to the given one. Copies are not trained on.
 */
export async function forkFrom(sessions: Sessions, session: SessionState, body: unknown): Promise<Opened> {
  const { call_id: named } = checked(forkBody, body)
  const call = callNamed(session, named)
  const { tree } = session.calls
  if (call === undefined || !counts(tree, call))
    throw invalid(`session ${session.id} has no answered call ${named}`, 'call_id')
  const path = pathTo(tree, call)
  const { id, truth, reward, metadata } = session.request.task
  const task = { id, truth, reward, ...(metadata === undefined ? {} : { metadata }) }
  const opened = await sessions.open({ policy: 'fork', parent: session.id, task })
  const numbers = new Map(path.map(({ started }, i) => [started.call, i]))
  const { trajectory } = opened.session.request
  const facts = path.flatMap(({ started, finished }): Fact[] => {
    const place = { trajectory, call: numbers.get(started.call)!, attempt: 0 }
    const parent = started.parent === null ? null : numbers.get(started.parent)!
    const copyOf = started.copyOf ?? { trajectory: started.trajectory, call: started.call }
    return [
      { ...started, ...place, opening: opened.opening, parent, copyOf },
      { ...finished!, ...place },
    ]
  })
  await sessions.write(facts)
  return opened
}

/** Upper bound on a session's new facts that wait for a client which reads more slowly than they come. */
const mostWaiting = 1024

/**
 * Sends the session's facts as server-sent events: recorded ones from number `from` on, then new ones, until the client
 * goes away, or reads so slowly that its connection is closed. It may then ask again, from its next number on.
 */
export async function sendEvents(
  sessions: Sessions,
  session: SessionState,
  from: number,
  response: ServerResponse,
): Promise<void> {
  const sent = new Set<string>()
  let number = 0
  const send = async (fact: Fact) => {
    const key = factKey(fact)
    if (sent.has(key)) return
    sent.add(key)
    if (number++ < from) return
    const text = `id: ${number - 1}\nevent: ${fact.type}\ndata: ${JSON.stringify(fact, plain)}\n\n`
    await writeAndDrain(response, text)
  }
  const waiting: Fact[] = []
  let wake = () => {}
  const stop = sessions.listen(fact => {
    if (fact.trajectory !== session.id) return
    waiting.push(fact)
    if (waiting.length > mostWaiting) response.destroy()
    wake()
  })
  response.once('close', () => wake())
  try {
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' })
    response.flushHeaders()
    for await (const fact of sessions.recorded(session.id)) {
      if (response.destroyed) return
      await send(fact)
    }
    while (!response.destroyed) {
      const next = waiting.shift()
      if (next !== undefined) await send(next)
      else
        await new Promise<void>(resolve => {
          wake = resolve
        })
    }
  } finally {
    stop()
  }
}

const plain = (_key: string, value: unknown) =>
  ArrayBuffer.isView(value) ? Array.from(value as unknown as Iterable<number>) : value

export const sendState = (response: ServerResponse, session: SessionState): void =>
  sendJson(response, 200, stateOf(session))
