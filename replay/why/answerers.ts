/**
 * Answerers: the parts of a run that can owe an answer, each with its state and its latest sign of life in the log.
 *
 * in   evidence, circumstances        out  a link of a chain for an engine, an executor, or a role
 * Invariant: a part whose process is gone is `gone`, whatever it wrote last. An engine or executor, which reports every
 * second, is `silent` if it has not reported for more than `silentMs`. A role without reports is `working` while its
 * actor is starting, or is up in a process that this host sees.
 */
import type { ActorStatus } from '../../messages/commands'
import type { EngineId, ExecutorId } from '../../messages/ids'
import type { ProcessStanding } from '../log/processStanding'
import type { Circumstances, Evidence, LastEvent } from './evidence'

/**
 * working: the part lives and can do the work. queued: the work waits for room, or for an executor that offers its
 * tool. silent: no sign of life. down: its actor is restarting, resting, stopped or given up, or its engine left the
 * run. gone: its process does not exist. paused: a person or a full disk holds it. unknown: its process is on another
 * host, or the log names none.
 */
export type AnswererState = 'working' | 'queued' | 'silent' | 'down' | 'gone' | 'paused' | 'unknown'

export interface Link {
  readonly kind: 'fact' | 'command' | 'actor' | 'engine' | 'executor' | 'process' | 'disk' | 'person'
  readonly name: string
  /** Text for a person: the state of the part as the log shows it, or details of the fact or command. */
  readonly says: string
  readonly last: LastEvent | null
  /** Set for a part that can owe an answer; absent for facts and commands. */
  readonly state?: AnswererState
}

/** A link that can owe an answer. */
export type Answerer = Link & { readonly state: AnswererState }

/**
 * Milliseconds after which a part that reports every second, and has not, is silent. Equals the scheduler's default.
 */
export const silentMs = 15_000

export const seconds = (ms: number): string => {
  const s = Math.max(0, Math.round(ms / 1000))
  if (s < 120) return `${s} s`
  return s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`
}

export function answerers(evidence: Evidence, { now, standings }: Circumstances) {
  const { trees, engines, executors } = evidence
  const isSilent = (last: LastEvent | null) => last === null || now - last.at > silentMs

  /** Finds the status of an actor by the end of its path, in the newest tree that has it. */
  function actorAt(
    end: string,
  ): { readonly actor: ActorStatus; readonly standing: ProcessStanding | undefined } | undefined {
    for (const { tree, actors } of trees) {
      const actor = actors.find(one => one.actor.endsWith(`/${end}`))
      if (actor !== undefined) return { actor, standing: standings.get(tree) }
    }
    return undefined
  }

  function actorState(end: string): { readonly state: AnswererState; readonly says: string } {
    const found = actorAt(end)
    if (found === undefined) return { state: 'unknown', says: 'the log names no process for it' }
    const { actor, standing } = found
    const where = `process ${actor.pid} on ${actor.host}`
    if (standing === 'gone') return { state: 'gone', says: `its ${where} is gone, killed or crashed` }
    if (standing === 'stopped') return { state: 'gone', says: `its ${where} has ended` }
    const reason = actor.reason === undefined ? '' : `: ${actor.reason.split('\n')[0]}`
    const restarts = actor.restarts === 0 ? '' : `, ${actor.restarts} restarts`
    const says = `actor ${actor.actor} is ${actor.state}${restarts}${reason} (${where})`
    if (actor.state === 'up') return { state: standing === 'running' ? 'working' : 'unknown', says }
    return { state: actor.state === 'starting' ? 'working' : 'down', says }
  }

  /** Link of a role that sends no reports, such as the verifier. `last`: its latest record, if the log has one. */
  function role(name: string, last: LastEvent | null, end = name): Answerer {
    const { state, says } = actorState(end)
    return { kind: 'actor', name, says, last, state }
  }

  function engine(id: EngineId): Answerer {
    const known = engines.get(id)
    const actor = actorState(`inference/${id}`)
    const link = { kind: 'engine' as const, name: id, last: known?.last ?? null }
    if (actor.state === 'gone' || actor.state === 'down') return { ...link, ...actor }
    if (known?.left) {
      const says = `it left the run ${seconds(now - known.left.event.at)} ago: ${known.left.value}`
      return { ...link, state: 'down', says, last: known.left.event }
    }
    const status = known?.status
    if (status == null) return { ...link, state: 'silent', says: 'it never reported its status' }
    const { running, waiting, referencedTokens, kvTokens, version } = status.value
    const kv = kvTokens === 0 ? '' : `, ${Math.round((100 * referencedTokens) / kvTokens)} % of its KV cache in use`
    const says = `${running} running, ${waiting} waiting${kv}, policy version ${version}`
    const age = seconds(now - status.event.at)
    if (isSilent(status.event)) {
      return { ...link, state: 'silent', says: `no status for ${age}; the last one said: ${says}`, last: status.event }
    }
    return { ...link, state: 'working', says, last: status.event }
  }

  function executor(id: ExecutorId, holds: string): Answerer {
    const known = executors.get(id)
    const link = { kind: 'executor' as const, name: id, last: known?.event ?? null }
    const actor = actorState(`tool-executor.${id}`)
    if (actor.state === 'gone' || actor.state === 'down') return { ...link, ...actor }
    if (known === undefined) return { ...link, state: 'silent', says: 'it never offered slots' }
    const { slots, held } = known.value
    const has = held.includes(holds) ? 'it holds the call' : 'it does not report the call as held'
    const says = `${held.length} of ${slots} slots in use; ${has}`
    if (isSilent(known.event))
      return { ...link, state: 'silent', says: `no report for ${seconds(now - known.event.at)}; ${says}` }
    return { ...link, state: 'working', says }
  }

  return { role, engine, executor, actorState, isSilent }
}

export type Answerers = ReturnType<typeof answerers>
