/**
 * Opens the graders of a run: one for each built-in reward and for each reward of the recipe.
 *
 * in   the recipe and its `reward` section
 * out  graders by the name of the reward; '' is the section's own reward
 * Invariant: a failure of a user's function does not fail the run: if the function raises, dies, returns no number or
 * misses its deadline, the rollout gets no reward. (A JavaScript function that blocks the event loop blocks the
 * process.) For each reward, the first failure of each kind is logged, whether the grader gave no reward or rejected.
 */

import type { RewardProcesses } from '../../backends/reward/rewardProcess'
import { builtInRewards, type Recipe, type RecipeConfig, type RewardConfig, type RewardFunction } from '../../config'
import { answerText } from '../../kernels'
import { systemEffects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { excerpt } from '../../runtime/secrets/knownSecrets'
import { didYouMean } from '../../runtime/settings/nearestName'
import { SandboxError } from '../../sandbox/errors'
import { outOfMemory } from '../../sandbox/refusals'
import { isOutOfMemory } from '../../sandbox/sandbox'
import type { GraderSandbox } from './graderSandbox'
import { mathGrader } from './mathGrader'
import { choiceGrader, exactGrader, formatGrader } from './textGraders'
import type { Grade, Graded, Grader, Ungraded } from './verifierPort'

export interface GradersOptions {
  readonly config: RecipeConfig
  readonly rewards?: Recipe['rewards']
  readonly sandbox: GraderSandbox
  readonly log?: Pick<Log, 'warn' | 'debug'>
  /** Grader of the reward `verifier`, for tasks with an environment. Absent: that reward is never given. */
  readonly verifier?: Grader
}

export interface Graders {
  readonly byName: ReadonlyMap<string, Grader>
  close(): Promise<void>
}

/** Opens the graders. @throws TroupeError config.unknown_reward, config.reward_not_loaded (a Python reward) */
export async function openGraders({ config, rewards = {}, sandbox, log, verifier }: GradersOptions): Promise<Graders> {
  const { reward } = config
  const { place, timeoutMs, weights, literal } = reward
  const named = [reward.name, ...Object.keys(weights ?? {})]
  const known = [...new Set([...builtInRewards, ...Object.keys(rewards)])]
  for (const name of named) if (!known.includes(name)) throw unknownReward(name, known)
  const byName = new Map<string, Grader>([
    ['math', mathGrader(sandbox, { place: place === 'response' ? 'anywhere' : place, timeoutMs, literal })],
    ['choice', choiceGrader(place)],
    ['exact', exactGrader(place)],
    ['format', formatGrader],
    ['verifier', verifier ?? noVerifier],
  ])
  for (const [name, judge] of Object.entries(rewards)) byName.set(name, functionGrader(name, judge, config, sandbox))
  let processes: RewardProcesses | undefined
  if (reward.file !== undefined || reward.module !== undefined) {
    processes = await startPython(reward, log)
    byName.set('python', pythonGrader(processes, reward))
  }
  if (weights !== undefined) byName.set('weighted', weightedGrader(weights, byName))
  const logged = new Set<string>()
  for (const [name, grader] of byName) byName.set(name, loggingFailures(name, grader, logged, log))
  byName.set('', byName.get(reward.name)!)
  return { byName, close: async () => processes?.close() }
}

const noVerifier: Grader = async ({ task }) => ({
  reward: null,
  how: 'no-environment',
  why: `task ${task.id} asks for a verifier, and this process opens no environments`,
})

/**
 * Starts the processes of a Python reward. `rewardProcess` is loaded only here, since most runs have no Python reward.
 */
function startPython(reward: RewardConfig, log: GradersOptions['log']): Promise<RewardProcesses> {
  const { startRewardProcesses } =
    require('../../backends/reward/rewardProcess') as typeof import('../../backends/reward/rewardProcess')
  const { file, module, interpreter, timeoutMs, processes } = reward
  return startRewardProcesses({
    ...(file === undefined ? {} : { file }),
    ...(module === undefined ? {} : { module }),
    ...(interpreter === undefined ? {} : { python: interpreter }),
    function: reward.function,
    timeoutMs,
    processes,
    onPrinted: line => log?.debug({ line }, 'printed by the reward function'),
  })
}

function pythonGrader(processes: RewardProcesses, { place }: RewardConfig): Grader {
  return async ({ response, truth, task }, signal) => {
    const answer = answerText(response, place) ?? ''
    const { id, messages, metadata = {} } = task
    const said = await processes.judge(answer, { id, messages, truth, metadata, response }, signal)
    if ('fault' in said) return { reward: null, how: said.fault, why: said.why }
    return { reward: said.score, answer, how: 'python', ...(said.why === undefined ? {} : { why: said.why }) }
  }
}

function functionGrader(name: string, judge: RewardFunction, config: RecipeConfig, sandbox: GraderSandbox): Grader {
  const { place, timeoutMs } = config.reward
  return async ({ response, truth, task }, signal) => {
    const late = stoppableDeadline(timeoutMs)
    const either = AbortSignal.any([signal, late.signal])
    const answer = answerText(response, place)
    try {
      const aside = <T>(wait: Promise<T>): Promise<T> => {
        late.stop()
        return wait.finally(late.go)
      }
      const python = async (code: string, stdin?: string) => {
        const given = stdin === undefined ? { code } : { code, stdin }
        const ran = await aside(sandbox.run({ id: `reward ${name}`, ...given, timeoutMs }, either))
        if (isOutOfMemory(ran)) throw outOfMemory()
        return { status: ran.status, stdout: utf8(ran.stdout), stderr: utf8(ran.stderr) }
      }
      const whole = { ...task, truth }
      const given = (async () =>
        judge({ response, answer, task: whole }, { signal: either, timeoutMs, aside, python, config }))()
      return gradeOf(name, await rejectOnAbort(given, either), answer ?? '')
    } catch (thrown) {
      signal.throwIfAborted()
      if (late.signal.aborted) return { reward: null, how: 'timeout', why: `no score within ${timeoutMs} ms` }
      const error = asError(thrown)
      // The code of a TroupeError names the kind of failure, so failures of different kinds are counted apart: a judge
      // model that refuses, and one that is unreachable.
      if (error instanceof SandboxError && error.code === 'sandbox.out_of_memory') throw error // The port asks the grader again.
      const coded = error instanceof TroupeError
      const why = coded ? error.message : `${error.name}: ${error.message}`
      return { reward: null, how: coded ? error.code : 'raised', why: excerpt(why, 500) }
    } finally {
      late.stop()
    }
  }
}

/**
 * Makes a deadline that can be paused: the time that a reward function waits in a queue, or for the sandbox, which has
 * a deadline of its own, does not count.
 */
function stoppableDeadline(timeoutMs: number) {
  const aborter = new AbortController()
  let leftMs = timeoutMs
  let stopped = 0
  let since = systemEffects.elapsed()
  const begin = () => setTimeout(() => aborter.abort(), Math.max(0, leftMs))
  let timer = begin()
  return {
    signal: aborter.signal,
    stop() {
      if (stopped++ > 0) return
      clearTimeout(timer)
      leftMs -= systemEffects.elapsed() - since
    },
    go() {
      if (--stopped > 0) return
      since = systemEffects.elapsed()
      timer = begin()
    },
  }
}

function gradeOf(name: string, given: unknown, answer: string): Grade {
  const whole =
    typeof given === 'object' && given !== null ? (given as Readonly<Record<string, unknown>>) : { score: given }
  const { score, why } = whole
  if (typeof score !== 'number' || !Number.isFinite(score)) {
    return { reward: null, how: 'no-number', why: `it returned ${excerpt(String(score), 80)}` }
  }
  const text = (value: unknown, otherwise: string) => (typeof value === 'string' ? value : otherwise)
  const said = typeof why === 'string' ? { why } : {}
  return { reward: score, answer: text(whole.answer, answer), how: text(whole.how, name), ...said }
}

/**
 * Makes the grader that gives the weighted sum of several graders' rewards, or no reward if one of them gives none.
 */
function weightedGrader(weights: Readonly<Record<string, number>>, byName: ReadonlyMap<string, Grader>): Grader {
  const parts = Object.entries(weights).map(([name, weight]) => ({ name, weight, grader: byName.get(name)! }))
  return async (ask, signal) => {
    const grades = await Promise.all(parts.map(async part => ({ ...part, grade: await part.grader(ask, signal) })))
    const failed = grades.find(({ grade }) => grade.reward === null)
    if (failed !== undefined) {
      const { how, why } = failed.grade as Ungraded
      return { reward: null, how, why: `${failed.name}: ${why}` }
    }
    const judged = grades.map(({ name, weight, grade }) => ({ name, weight, ...(grade as Graded) }))
    return {
      reward: judged.reduce((sum, { weight, reward }) => sum + weight * reward, 0),
      answer: judged.find(({ answer }) => answer !== '')?.answer ?? '',
      how: 'weighted',
      why: judged.map(({ name, weight, reward, how }) => `${weight} × ${name} ${reward} (${how})`).join(', '),
    }
  }
}

/** Wraps a grader so that its first failure of each kind is logged. */
function loggingFailures(name: string, grader: Grader, logged: Set<string>, log: GradersOptions['log']): Grader {
  const warn = (task: string, how: string, why: string) => {
    if (logged.has(`${name} ${how}`)) return
    logged.add(`${name} ${how}`)
    log?.warn({ reward: name, task, how, why }, 'the grader gave no reward')
  }
  return async (ask, signal) => {
    try {
      const grade = await grader(ask, signal)
      if (grade.reward === null) warn(ask.task.id, grade.how, grade.why)
      return grade
    } catch (thrown) {
      // Logs the first error here: the port retries the grader, and the run's log records only the last error.
      const error = asError(thrown)
      if (!signal.aborted) warn(ask.task.id, error instanceof TroupeError ? error.code : error.name, error.message)
      throw thrown
    }
  }
}

const utf8 = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')

const unknownReward = (name: string, known: readonly string[]) =>
  new TroupeError('config.unknown_reward', {
    boundary: 'config',
    retriable: false,
    message: `unknown reward '${name}'${didYouMean(name, known)}`,
    hint: `known rewards: ${known.join(', ')}; a recipe defines others in \`rewards\``,
  })
