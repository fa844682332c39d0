/**
 * Outcomes of runs, rollouts, groups and turns. An outcome has one kind:
 *
 * waiting: no answer yet. scored: the rollout has a reward, or the group was selected or, if not trained on, closed.
 * answered: a chat, a turn or a run ended, which has no reward. failed: the part `by` broke. timed-out: `by` gave no
 * answer in time. refused: `by` did not accept the request or group. lost: the run or its process ended before the
 * answer.
 * Invariant: only `scored` has a reward. Nothing that broke ever counts as a reward of 0.
 */
import type { Evidence, GroupEvidence, RolloutEvidence } from './evidence'

export type Outcome =
  | { readonly kind: 'waiting' }
  | { readonly kind: 'answered'; readonly why: string }
  | { readonly kind: 'scored'; readonly reward: number | null; readonly why: string }
  | { readonly kind: 'failed' | 'timed-out' | 'refused'; readonly by: string; readonly why: string }
  | { readonly kind: 'lost'; readonly why: string }

/**
 * running: a process of the run lives. finished: the log has `run.finished`. stopped: every process of the run ended
 * its actors itself, without `run.finished`. crashed: a process is gone that did not end its actors, and none lives.
 * unknown: the log names no process, or one on another host, and none is seen alive.
 */
export type RunStanding = 'running' | 'finished' | 'stopped' | 'crashed' | 'unknown'

const open: Outcome = { kind: 'waiting' }

/** Outcome of a request without an answer: it waits while the run may live, else it is lost. */
const unanswered = (run: RunStanding): Outcome =>
  run === 'running' || run === 'unknown' ? open : { kind: 'lost', why: lostBecause[run] }

const lostBecause: Readonly<Record<Exclude<RunStanding, 'running' | 'unknown'>, string>> = {
  finished: 'the run ended before the answer',
  stopped: 'the process of the run ended before the answer; a resume asks again',
  crashed: 'the process of the run is gone; a resume asks again',
}

export function rolloutOutcome(one: RolloutEvidence, run: RunStanding): Outcome {
  const { rollout, finished, reward } = one
  const ending = finished?.value ?? rollout.ending
  if (ending?.outcome === 'failed') return failure(one, ending.reason)
  if (reward !== null) {
    const fact = reward.value
    if (fact.type === 'reward.assigned') return { kind: 'scored', reward: fact.reward, why: fact.why ?? fact.how }
    const kind = fact.how === 'timeout' ? 'timed-out' : 'failed'
    return { kind, by: 'verifier', why: `${fact.how}: ${fact.why}` }
  }
  if (finished !== null && rollout.request.purpose === 'chat') return { kind: 'answered', why: finished.value.reason }
  return unanswered(run)
}

function failure({ rollout, interrupted }: RolloutEvidence, reason: string): Outcome {
  if (reason === 'group-closed') {
    const why = `the group was closed ${rollout.request.deadlineMs / 1000} s after its start without this rollout`
    return { kind: 'timed-out', by: 'deadline of the group', why }
  }
  const how = interrupted?.value.reason
  const by = interrupted === null ? 'coordinator' : `engine ${interrupted.value.engine}`
  return { kind: how === 'too-long' || how === 'not-recorded' ? 'refused' : 'failed', by, why: reason }
}

export function groupOutcome({ purpose, closed, decision }: GroupEvidence, run: RunStanding): Outcome {
  if (decision?.value.type === 'group.selected') {
    const { kept, dropped, step } = decision.value
    return {
      kind: 'scored',
      reward: null,
      why: `selected for step ${step}: ${kept.length} kept, ${dropped.length} dropped`,
    }
  }
  if (decision?.value.type === 'group.rejected') {
    const { reason, rewarded } = decision.value
    return { kind: 'refused', by: 'selection', why: `${reason}: ${rewarded} members have a reward` }
  }
  if (closed !== null && purpose !== 'train') {
    const { reason, rewarded } = closed.value
    return { kind: 'scored', reward: null, why: `closed (${reason}): ${rewarded.length} members have a reward` }
  }
  return unanswered(run)
}

/**
 * Outcome of one turn of a rollout. The turn is answered once it has a `turn.completed` and, if it made tool calls,
 * once their results were added to the context.
 */
export function turnOutcome(one: RolloutEvidence, turn: number, run: RunStanding): Outcome {
  const done = one.turns.get(turn)
  const isCurrent = one.rollout.turn === turn
  if (done !== undefined && !(isCurrent && (one.rollout.phase === 'tools' || one.rollout.phase === 'append'))) {
    const { finish, tokens, engine } = done.value
    return { kind: 'answered', why: `${tokens.length} tokens from engine ${engine}, finish ${finish}` }
  }
  return one.rollout.ending?.outcome === 'failed' ? rolloutOutcome(one, run) : unanswered(run)
}

/** Decides whether the run lives, by its `run.finished` and by the standing of the processes that its log names. */
export function runStanding(
  { finished, trees }: Pick<Evidence, 'finished' | 'trees'>,
  standings: ReadonlyMap<string, string>,
): RunStanding {
  if (finished !== null) return 'finished'
  const all = trees.map(({ tree }) => standings.get(tree))
  if (all.some(one => one === 'running')) return 'running'
  if (all.length === 0 || all.some(one => one === undefined || one === 'on another host')) return 'unknown'
  return all.includes('gone') ? 'crashed' : 'stopped'
}
