/** Summary of an exchange (one answer of a chat): a line on stderr, or with --json a JSON line on stdout. */
import type { RolloutRequested } from '../../messages/facts'
import { escapeForTerminal } from '../io/terminal'
import type { Exchanged } from './exchange'

export function summarise(
  { rollout, firstTokenLagsMs, toolLagsMs }: Exchanged,
  request: RolloutRequested,
  run: string,
  json: boolean,
): void {
  const { sampledTokens, toolCalls, toolErrors, texts, ending } = rollout
  const used = rollout.contextTokens === 0 ? sampledTokens : rollout.contextTokens - request.tokens.length
  const { outcome, reason } = ending!
  if (json) {
    const counts = { turns: texts.length, sampledTokens, toolCalls, toolErrors }
    const line = {
      type: 'summary',
      run,
      trajectory: request.trajectory,
      outcome,
      reason,
      ...counts,
      firstTokenLagsMs,
      toolLagsMs,
    }
    process.stdout.write(`${JSON.stringify(line)}\n`)
    return
  }
  const calls = toolCalls === 0 ? '' : `, ${toolCalls} calls (${toolErrors} failed)`
  const why = reason === 'stop' ? '' : `; ended by ${escapeForTerminal(reason)}`
  process.stderr.write(`[${used} of ${request.limits.responseTokens} tokens${calls}${why}]\n`)
}
