/**
 * Runs the verifier of a step and reads its reward.
 *
 * in   the environment in which the agent worked        out  rewards, and the verifier's log
 * Invariant: the agent's processes are dead before the verifier runs, and the verifier's processes are dead before the
 * reward is read. Reward files from before are removed. A verifier that misses its deadline gives no reward, whatever
 * it wrote.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { excerpt, lastExcerpt } from '../../runtime/secrets/knownSecrets'
import type { Environment, ExecRequest, ExecResult } from '../drivers/driver'
import { environmentError } from '../drivers/errors'
import { moveArtifacts } from './artifacts'
import { type Rewards, readRewards } from './reward'
import type { Task, TaskStep } from './task'
import { type AllowedVariables, resolveVariables } from './variables'

export interface Verified {
  readonly rewards: Rewards
  readonly log: string
}

const quickMs = 60_000
/** Upper bound on the log of a verifier that is kept, in bytes. */
const mostLog = 1024 * 1024

/** Makes the directories of logs, writable for the agent's and the verifier's users, as in Harbor. */
const makeLogs =
  'mkdir -p /logs/agent /logs/verifier /logs/artifacts && chmod 777 /logs/agent /logs/verifier /logs/artifacts'

/**
 * Runs the step's tests and returns its rewards.
 * @param openSeparate starts the verifier's own environment, for a step whose verifier is separate
 * @throws TroupeError task.no_reward, task.bad_reward, environment.*
 */
export async function verifyStep(
  task: Task,
  step: TaskStep,
  environment: Environment,
  openSeparate: () => Promise<Environment>,
  allowed: AllowedVariables,
): Promise<Verified> {
  if (!step.isSeparate) {
    await environment.restart()
    return judge(step, environment, allowed)
  }
  const own = await openSeparate()
  try {
    await prepareLogs(own)
    for (const { command, timeout_sec, user } of step.verifier.collect)
      await environment.exec({ command, timeoutMs: timeout_sec * 1000, ...(user === undefined ? {} : { user }) })
    await environment.kill()
    await moveArtifacts(task, step, environment, own)
    return await judge(step, own, allowed)
  } finally {
    await own.stop()
  }
}

export async function prepareLogs(environment: Environment): Promise<void> {
  await mustRun(environment, { command: makeLogs, user: 'root', cwd: '/', timeoutMs: quickMs })
}

async function judge(step: TaskStep, environment: Environment, allowed: AllowedVariables): Promise<Verified> {
  const { env, user, timeout_sec } = step.verifier
  // The agent may have put files or links at these paths, so they are removed and made again.
  // Tests that are in the verifier's own image stay.
  const clean = `rm -rf ${step.tests.length > 0 ? '/tests ' : ''}/logs/verifier && `
  await mustRun(environment, { command: clean + makeLogs, user: 'root', cwd: '/', timeoutMs: quickMs })
  // An agent that has removed the working directory must not keep the verifier from judging its files.
  const { workdir } = environment
  if (workdir !== undefined)
    await mustRun(environment, { command: ['mkdir', '-p', workdir], user: 'root', cwd: '/', timeoutMs: quickMs })
  for (const tests of step.tests) await environment.upload(tests, '/tests')
  const script = `/tests/${step.testScript}`
  await mustRun(environment, { command: ['chmod', '+x', script], user: 'root', cwd: '/', timeoutMs: quickMs })
  const ended = await environment.exec({
    command: `(${script}) > /logs/verifier/test-stdout.txt 2>&1`,
    env: resolveVariables(env, allowed),
    timeoutMs: timeout_sec * 1000,
    ...(user === undefined ? {} : { user }),
  })
  await environment.kill()
  const place = mkdtempSync(join(tmpdir(), 'troupe-verifier-'))
  try {
    const files = join(place, 'verifier')
    await environment.download('/logs/verifier', files)
    const output = join(files, 'test-stdout.txt')
    const log = existsSync(output) ? shownLog(output) : ''
    if (ended.status === 'timeout') throw late(timeout_sec, log)
    return { rewards: readRewards(files), log }
  } finally {
    rmSync(place, { recursive: true, force: true })
  }
}

/** Beginning of a verifier's log, without known secrets. More is read than kept, so that no secret is cut in two. */
const shownLog = (file: string): string =>
  excerpt(
    readFileSync(file)
      .subarray(0, mostLog + 4096)
      .toString(),
    mostLog,
  )

const late = (seconds: number, log: string) =>
  environmentError(
    'environment.refused',
    `the verifier did not end in ${seconds} s; it wrote: ${lastExcerpt(log, 300)}`,
  )

export async function mustRun(environment: Environment, request: ExecRequest): Promise<ExecResult> {
  const result = await environment.exec(request)
  const { status, stdout, stderr, reason } = result
  if (status === 'ok') return result
  const said = reason ?? (`${stderr}${stdout}`.trim() || status)
  throw environmentError(
    'environment.refused',
    `environment ${environment.id}: the command '${[request.command].flat().join(' ')}' failed: ${lastExcerpt(said, 500)}`,
  )
}
