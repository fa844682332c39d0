/**
 * Bounds the sessions that are in use at once, on a gateway that anyone on this machine may use.
 *
 * in   facts of sessions, the number of those that are being opened
 * out  a refusal that tells the client to wait; a warning at 80 % of the bound
 * Invariant: a session counts from its opening, and from each call, until it has ended or had no fact for an hour.
 * Agents that only call the model never end theirs, so an open session alone is no sign of use.
 */
import type { Log } from '../../runtime/log'
import { GatewayError } from '../gatewayError'
import type { SessionFact } from './session'

const idleMs = 3_600_000
const warnAt = 0.8

export interface OpenBoundOptions {
  readonly most: number
  readonly log: Pick<Log, 'warn'>
}

export class OpenBound {
  /** Time of each counted session's last fact, the longest idle session first. */
  private readonly lastUsed = new Map<string, number>()
  private warned = Number.NEGATIVE_INFINITY

  constructor(private readonly options: OpenBoundOptions) {}

  /** Notes a session's fact. Its end frees its place; its opening, a call, or any fact while it counts is use. */
  note({ type, trajectory, at }: SessionFact): void {
    const isCounted = this.lastUsed.delete(trajectory)
    if (type === 'rollout.finished') return
    if (isCounted || type === 'session.opened' || type === 'call.started') this.lastUsed.set(trajectory, at)
  }

  /** Checks that one more session may be opened. @throws GatewayError `busy` if the most are in use or being opened */
  check(opening: number, now: number): void {
    for (const [id, at] of this.lastUsed) {
      if (at >= now - idleMs) break
      this.lastUsed.delete(id)
    }
    const { most, log } = this.options
    const inUse = this.lastUsed.size + opening
    if (inUse >= warnAt * most && now - this.warned >= idleMs) {
      this.warned = now
      log.warn(
        { inUse, most },
        'many sessions are in use: at the bound, the gateway opens no further one until some end or are idle for an hour (--max-open-sessions)',
      )
    }
    if (inUse < most) return
    throw new GatewayError({
      kind: 'busy',
      code: 'too_many_sessions',
      message: `${inUse} sessions are in use, the most that this gateway without a key allows: end some (POST /troupe/v1/sessions/ID/end), leave them idle for an hour, or start the gateway with a higher --max-open-sessions or with --key-file`,
    })
  }
}
