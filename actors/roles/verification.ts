/**
 * The role `verifier`: graders for the answers of a run. Its processes share the partitions of `verifications`.
 * in   answers to compare with the truth        out  rewards
 */
import { graderSandbox } from '../ports/graderSandbox'
import { mathGrader } from '../ports/mathGrader'
import { verifierKey, verifierPort } from '../ports/verifierPort'
import { verifier } from '../verifier'
import type { Scope } from './scope'

export async function startVerification(scope: Scope): Promise<void> {
  const { config, fx } = scope.options
  const sandbox = graderSandbox()
  scope.onClose(() => sandbox.close())
  const { place, timeoutMs } = config.reward
  await scope.host({
    behaviour: verifier(),
    shared: true,
    feeds: [{ topic: 'verifications', from: 'latest' }],
    perform: verifierPort(new Map([['math', mathGrader(sandbox, { place, timeoutMs })]]), fx),
    keyOf: verifierKey,
  })
}
