/**
 * Formats a fact as one line for a terminal. Text of models and tools is shortened and escaped.
 */
import type { StageProgressed } from '../messages/facts'
import type { Message } from '../messages/topics'
import { escapeForTerminal } from '../runtime/escapeForTerminal'
import { shownScore } from './learning/evaluationScore'
import { placeOfCall } from './placeOfCall'

const shortest = (text: string, most = 100) => {
  const line = escapeForTerminal(text).replace(/\s+/g, ' ').trim()
  return line.length > most ? `${line.slice(0, most - 1)}…` : line
}

const leftText = ({ leftSeconds }: StageProgressed) =>
  leftSeconds === undefined ? '' : `, about ${Math.ceil(leftSeconds)} s left`

export function factLine(message: Message): string {
  const who = 'trajectory' in message ? message.trajectory : 'group' in message ? String(message.group) : ''
  const turn = 'turn' in message ? `#${message.turn}` : ''
  const head = `${message.type.padEnd(17)} ${escapeForTerminal(who)}${turn}`
  switch (message.type) {
    case 'rollout.requested':
      return `${head}  ${message.purpose}, step ${message.step}, ${message.tokens.length} prompt tokens`
    case 'rollout.started':
      return `${head}  on ${shortest(message.engine, 40)}`
    case 'turn.asked':
      return `${head}  attempt ${message.attempt}, ${message.contextTokens} tokens of context`
    case 'turn.completed':
      return `${head}  ${message.tokens.length} tokens, ${message.finish}: ${shortest(message.text)}`
    case 'turn.interrupted':
      return `${head}  after ${message.tokens.length} tokens: ${message.reason} ${shortest(message.error)}`
    case 'tool.asked':
      return `${head}  ${shortest(message.tool, 40)} ${shortest(JSON.stringify(message.arguments))}`
    case 'tool.completed':
      return `${head}  ${message.status}: ${shortest(message.text)}`
    case 'context.appended':
      return `${head}  ${message.tokens.length} tokens: ${shortest(message.text)}`
    case 'rollout.finished':
      return `${head}  ${message.outcome} (${shortest(message.reason)}), ${message.turns} turns`
    case 'reward.failed':
      return `${head}  ${shortest(message.how)}: ${shortest(message.why)}`
    case 'reward.assigned':
      return `${head}  ${message.reward}, answer '${shortest(message.answer)}' (${shortest(message.how)})`
    case 'session.opened':
      return `${head}  opening ${message.opening}`
    case 'call.started':
      return `${head}  ${placeOfCall(message)}, ${message.contextTokens} tokens of context`
    case 'call.finished':
      return `${head}  call ${message.call}, ${message.tokens.length} tokens, ${message.finish}: ${shortest(message.text || message.error)}`
    case 'call.delivered':
      return `${head}  call ${message.call} was ${message.delivered ? '' : 'not '}delivered`
    case 'group.closed':
      return `${head}  ${message.reason}, ${message.rewarded.length} rewarded`
    case 'group.selected':
      return `${head}  ${message.kept.length} kept, ${message.dropped.length} dropped (${shortest(message.selection)})`
    case 'group.rejected':
      return `${head}  ${message.reason}, mean reward ${message.meanReward.toFixed(3)}`
    case 'step.started':
      return `${head} ${message.step}, ${message.trajectories.length} trajectories on version ${message.baseVersion}`
    case 'step.completed':
      return `${head} ${message.step}, loss ${(message.metrics.loss ?? Number.NaN).toPrecision(4)}, version ${message.version}`
    case 'stage.progressed':
      return `${head} ${shortest(message.stage)}, ${Math.floor(message.done * 100)} % done, loss ${message.loss.toPrecision(4)}${leftText(message)}`
    case 'weights.published':
      return `${head} version ${message.version}, ${message.bytes} bytes`
    case 'evaluation.completed':
      return `${head} ${shortest(message.name)}, pass@1 ${shownScore(message)} after step ${message.step}`
    case 'record.refused':
      return `${head} ${shortest(message.origin)}: ${shortest(message.error)}`
    case 'control.obeyed':
      return `${head} ${message.order} ${shortest(message.reason)}`
    case 'alarm.raised':
      return `${head} ${shortest(message.alarm)}: ${shortest(message.message)}`
    case 'run.finished':
      return `${head} ${message.outcome}: ${shortest(message.reason)}`
    default:
      return head
  }
}
