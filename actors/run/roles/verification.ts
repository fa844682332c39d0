/**
 * The role `verifier`: graders for the answers of a run. All processes with this role divide the partitions of
 * `verifications` among them.
 *
 * in   answers to judge        out  rewards, or the reason why an answer has none
 */
import { environmentGrader } from '../../verification/environmentGrader'
import { graderSandbox } from '../../verification/graderSandbox'
import { openGraders } from '../../verification/graders'
import { verifier } from '../../verification/verifier'
import { verifierKey, verifierPort } from '../../verification/verifierPort'
import { lazyEnvironments } from './environments'
import type { Scope } from './scope'

export async function startVerification(scope: Scope): Promise<void> {
  const { config, recipe, fx, log } = scope.options
  const branch = await scope.under('coordination')
  const sandbox = graderSandbox()
  branch.onClose('sandbox of the graders', () => sandbox.close())
  const environments = lazyEnvironments(branch)
  branch.onClose('environments', () => environments.close())
  const judge = environmentGrader(environments.open, environments.allowed)
  const graders = await openGraders({
    config,
    sandbox,
    log,
    verifier: judge,
    ...(recipe.rewards ? { rewards: recipe.rewards } : {}),
  })
  branch.onClose('graders', () => graders.close())
  await branch.host({
    behaviour: verifier(),
    shared: true,
    feeds: [{ topic: 'verifications', from: 'latest' }],
    perform: verifierPort(graders.byName, fx),
    keyOf: verifierKey,
  })
}
