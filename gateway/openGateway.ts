/**
 * Opens a gateway over a run's log: recovers its sessions, starts its engines, and listens.
 *
 * in   a journal, engines, a renderer, the recipe's sampling and limits        out  a server; facts
 * Invariant: a gateway that starts again over the same log has the sessions of the earlier one; a call without an
 * answer is generated again when its client repeats the request.
 */

import { tokenText } from '../backends/renderer/tokenText'
import type { RolloutRequested } from '../messages/facts'
import { epoch } from '../messages/ids'
import type { Effects } from '../runtime/effects'
import type { Journal } from '../runtime/journal/journal'
import type { Log } from '../runtime/log'
import { openEnginePool, type StartableEngine } from './engines/enginePool'
import { openServer } from './http/server'
import { conversationRenderer, type TextRenderer } from './rendering/conversationRenderer'
import type { AtPoint } from './session/callPoints'
import { Calls } from './session/calls'
import { OpenBound } from './session/openBound'
import { Sessions } from './session/sessions'

export interface GatewayOptions {
  readonly journal: Journal
  readonly engines: readonly StartableEngine[]
  readonly renderer: TextRenderer
  readonly fx: Effects
  readonly log: Pick<Log, 'warn'>
  readonly host: string
  readonly port: number
  /** Key that opens sessions. Required off loopback; without it every client on this machine may open them. */
  readonly key?: string
  readonly seed: number
  readonly limits: RolloutRequested['limits']
  /** Sampling of all calls; the renderer gives the stop tokens. Evaluation sessions may set temperature and top_p. */
  readonly sampling: Omit<RolloutRequested['sampling'], 'stopTokens'>
  /** Name of the model in answers to `models`. Default: the name that the engine gives. */
  readonly model?: string
  readonly strictModel?: boolean
  readonly strippedThinking?: 'branch' | 'restore'
  /** Time in ms after which a session expires: its calls are then refused. The request to open it may set another. */
  readonly ttlMs?: number
  readonly callTimeoutMs?: number
  readonly maxBodyBytes?: number
  /** Upper bound on the bytes of all bodies that are read or placed. Default: 512 MiB, but at least `maxBodyBytes`. */
  readonly maxHeldBytes?: number
  /** Without a key: upper bound on sessions that have not ended and had a fact within an hour. Default 262,144. */
  readonly mostOpen?: number
  readonly keepAliveMs?: number
  /** For tests of faults: called at each point of a call. */
  readonly atPoint?: AtPoint
}

export interface Gateway {
  /** Address without a path; `${url}/v1` is the base of OpenAI's clients, `${url}` that of Anthropic's. */
  readonly url: string
  readonly sessions: Sessions
  /** Ends running calls, records them, and closes engines and connections. The journal and the renderer stay open. */
  close(): Promise<void>
}

const hourMs = 3_600_000
const MIB = 1024 * 1024
/** Sessions of one hour: 512 each 7 s. An idle session holds at most 64 KiB of memory (`npm run bench -- gateway`). */
export const mostOpenSessions = 262_144

/** Opens the gateway. @throws TroupeError gateway.no_key, gateway.cannot_listen, render.refused, errors of engines */
export async function openGateway(options: GatewayOptions): Promise<Gateway> {
  const { journal, fx, log, host, port, key, seed, limits, callTimeoutMs = 600_000 } = options
  const renderer = await conversationRenderer(options.renderer)
  const { stopTokens } = await options.renderer.describe()
  const tokenBytes = await options.renderer.tokenBytes()
  const claim = await journal.appendTo(0, {
    type: 'partition.claimed',
    at: fx.now(),
    partition: 0,
    owner: `gateway-${fx.unique()}`,
  })
  const sessions = new Sessions({
    ...{ journal, fx, seed, limits, deadlineMs: options.ttlMs ?? 24 * hourMs, ttlMs: options.ttlMs ?? 24 * hourMs },
    sampling: { ...options.sampling, stopTokens },
    epochs: [epoch(claim.offset)],
    ...(options.strippedThinking === undefined ? {} : { strippedThinking: options.strippedThinking }),
    ...(key === undefined ? { openBound: new OpenBound({ most: options.mostOpen ?? mostOpenSessions, log }) } : {}),
  })
  await sessions.recover()
  const pool = await openEnginePool({ engines: options.engines, fx, log })
  const decode = (tokens: Int32Array) => options.renderer.decode(tokens)
  const points = options.atPoint === undefined ? {} : { atPoint: options.atPoint }
  const calls = new Calls({
    sessions,
    pool,
    renderer,
    decode,
    encode: text => options.renderer.encode(text),
    fx,
    callTimeoutMs,
    ...points,
  })
  try {
    const server = await openServer({
      ...{ host, port, calls, sessions, renderer, fx, log, strictModel: options.strictModel ?? false },
      ...points,
      ...(key === undefined ? {} : { key }),
      tokenText: give => tokenText(decode, give, tokenBytes),
      keepAliveMs: options.keepAliveMs ?? 3000,
      maxBodyBytes: options.maxBodyBytes ?? 32 * MIB,
      ...(options.maxHeldBytes === undefined ? {} : { maxHeldBytes: options.maxHeldBytes }),
      model: options.model ?? pool.model,
    })
    return {
      url: server.url,
      sessions,
      async close() {
        const closed = server.close()
        await calls.close()
        await closed
        await pool.close()
      },
    }
  } catch (thrown) {
    await pool.close()
    throw thrown
  }
}
