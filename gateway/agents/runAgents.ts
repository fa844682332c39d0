/**
 * Runs the agents of a run: starts a gateway inside the run, and for each rollout an agent program, which calls the
 * model through that gateway. The program, not Troupe's coordinator, then decides the rollout's turns: the program
 * leads the rollout.
 *
 * in   requests to start an agent for a rollout (lead) or to end it (dismiss)
 * out  session.opened, the calls' facts, turn.asked + turn.generate; at the end rollout.finished, reward.assigned or
 *      reward.failed, trajectory.release, answer.verify; the agents' output in the run's directory
 * Invariant: a rollout has one agent at a time, with a key and a directory of its own. The agent's program is killed
 * when this process ends. The rollout's session is then opened again for a new agent; the earlier calls do not count.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import type { AgentParts, Agents } from '../../actors/rollouts/agents'
import type { LeadRequest } from '../../actors/rollouts/nextActions'
import type { Renderer } from '../../backends/renderer/renderer'
import { tokenText } from '../../backends/renderer/tokenText'
import { longestContext } from '../../config'
import type { AgentConfig } from '../../config/sections/agent'
import type { VerifyAnswer } from '../../messages/commands'
import type { TrajectoryId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import type { Answer } from '../../runtime/host/host'
import { pythonPath } from '../../runtime/python'
import { knowVariables, passedOn } from '../../runtime/secrets/credentials'
import { generatedKey } from '../../runtime/secrets/generatedKey'
import { temporaryDirectory } from '../../sandbox/temporaryDirectory'
import { runEngines } from '../engines/runEngines'
import { openServer } from '../http/server'
import { openedBody } from '../http/sessionRoutes'
import { conversationRenderer, type TextRenderer } from '../rendering/conversationRenderer'
import { Calls } from '../session/calls'
import { endFacts, type SessionState } from '../session/session'
import { Sessions } from '../session/sessions'
import { endingOf, ownReward } from './agentEnd'
import { type ProgramEnding, runProgram, withFiles } from './agentProgram'
import { type FunctionProgram, functionProgram } from './functionProgram'
import { places } from './places'

const MIB = 1024 * 1024
/** Time in ms for which a session stays valid after its agent's deadline. */
const graceMs = 60_000
/** Interval in ms at which a stream gets a keep-alive text until its answer is complete. */
const keepAliveMs = 3000

/** Starts the gateway that serves the run's agents. @throws TroupeError gateway.cannot_listen, render.refused */
export async function startRunAgents(parts: AgentParts): Promise<Agents> {
  const { config, journal, fx, log } = parts
  const agent = config.agent!
  const renderer = await conversationRenderer(config.tools.inPrompt ? parts.renderer : withoutTools(parts.renderer))
  const { stopTokens } = await parts.renderer.describe()
  const tokenBytes = await parts.renderer.tokenBytes()
  const sessions = new Sessions({
    ...{ journal, fx, seed: config.seed, limits: config.limits, epochs: [] },
    sampling: { ...config.rollout.sampling, stopTokens },
    ...{ deadlineMs: agent.deadlineMs, ttlMs: agent.deadlineMs + graceMs },
    run: { takesRewards: agent.reward === 'agent' },
  })
  const pool = await runEngines({
    ...{ journal, fx, contextTokens: longestContext(config), model: config.name, onFailed: parts.onFailed },
    turnTimeoutMs: config.rollout.turnTimeoutMs,
  })
  const decode = (tokens: Int32Array) => parts.renderer.decode(tokens)
  const calls = new Calls({
    ...{ sessions, pool, renderer, decode, fx, callTimeoutMs: agent.deadlineMs },
    encode: text => parts.renderer.encode(text),
    run: { turns: config.limits.turns },
  })
  const server = await openServer({
    ...{ host: '127.0.0.1', port: 0, key: generatedKey(fx.unique()), calls, sessions, renderer, fx, log },
    ...{ strictModel: false, model: config.name },
    tokenText: give => tokenText(decode, give, tokenBytes),
    ...{ keepAliveMs, maxBodyBytes: 32 * MIB },
  }).catch(async thrown => {
    await pool.close()
    throw thrown
  })
  const free = places(agent.atOnce)
  const keys = new WeakMap<SessionState, string>()
  const leading = new Map<TrajectoryId, { readonly stop: AbortController; readonly ended: Promise<unknown> }>()

  const { PATH, HOME } = process.env
  const ownEnvironment: Readonly<Record<string, string>> = Object.fromEntries(
    [
      ['PATH', PATH],
      ['HOME', HOME],
      ['LANG', 'C.UTF-8'],
      ...Object.entries(passedOn(agent.passed)),
      ...Object.entries(agent.environment),
    ].filter((one): one is [string, string] => one[1] !== undefined),
  )
  knowVariables(agent.environment)
  const runs = programOf(agent, ownEnvironment, fx)

  async function lead(asked: LeadRequest, stop: AbortSignal): Promise<Answer | undefined> {
    const giveBack = await free.take(stop)
    const { request, epoch } = asked
    const { trajectory } = request
    const directory = temporaryDirectory('agent')
    let session: SessionState | undefined
    try {
      session = await open(asked)
      pool.enter(request, epoch, asked.turn)
      const { opened } = session.calls.tree
      const program = { directory: join(directory, 'work'), env: environmentOf(session, keys.get(session)!), fx }
      const taskFile = join(directory, 'task.json')
      mkdirSync(program.directory)
      const { id, messages } = request.task
      writeFileSync(taskFile, JSON.stringify({ id, messages, purpose: request.purpose }))
      const env = { ...program.env, TROUPE_TASK: taskFile }
      const { deadlineMs, logBytes } = agent
      const ended = await runs.run({ directory: program.directory, env, deadlineMs, logBytes }, stop)
      await calls.end(session)
      if (logBytes > 0) keepLog(parts.directory, `${trajectory}.${opened!.opening}`, ended)
      if (stop.aborted) return undefined
      const ending = endingOf(session, ended)
      const isFailed = ending.outcome === 'failed'
      const isGraded = agent.reward === 'grader'
      const rewards = isFailed || isGraded ? [] : await ownReward(session, agent, { ...program, env }, stop)
      if (stop.aborted) return undefined
      const [finished, ...given] = endFacts(session, ending, epoch, fx.now())
      return {
        facts: [finished!, ...(isFailed ? [] : given), ...rewards],
        commands: [
          { type: 'trajectory.release', trajectory, outcome: ending.outcome },
          ...(isFailed || !isGraded ? [] : [verifyOf(session)]),
        ],
      }
    } finally {
      giveBack()
      pool.leave(trajectory)
      if (session !== undefined) sessions.forget(session)
      rmSync(directory, { recursive: true, force: true })
    }
  }

  async function open({ request, opening, call }: LeadRequest): Promise<SessionState> {
    const key = generatedKey(fx.unique())
    const session = await sessions.adopt(request, { opening, call, key })
    keys.set(session, key)
    return session
  }

  function environmentOf(session: SessionState, key: string): Record<string, string> {
    const { opening, expiresAt } = session.calls.tree.opened!
    const { env } = openedBody({ session, opening, key, expiresAt }, server.url)
    return {
      ...ownEnvironment,
      ...env,
      TROUPE_SESSION: session.id,
      TROUPE_SESSION_URL: `${server.url}/troupe/v1/sessions/${encodeURIComponent(session.id)}`,
    }
  }

  /** Runs an agent for a rollout once `before`, the end of the rollout's earlier agent, has settled. */
  async function leadAfter(before: Promise<unknown> | undefined, asked: LeadRequest, stop: AbortSignal) {
    await before?.catch(() => {})
    try {
      return await lead(asked, stop)
    } catch (thrown) {
      if (stop.aborted) return undefined
      log.warn({ err: asError(thrown), trajectory: asked.request.trajectory }, 'the agent of a rollout failed')
      throw thrown
    }
  }

  return {
    async perform(request, signal) {
      if (request.kind === 'dismiss') {
        leading.get(request.trajectory)?.stop.abort(new Error('the rollout is over'))
        return undefined
      }
      const { trajectory } = request.request
      const before = leading.get(trajectory)
      before?.stop.abort(new Error('another agent was started for the rollout'))
      const stop = new AbortController()
      const onAbort = () => stop.abort(signal.reason)
      signal.addEventListener('abort', onAbort, { once: true })
      if (signal.aborted) onAbort()
      const mine = { stop, ended: leadAfter(before?.ended, request, stop.signal) }
      leading.set(trajectory, mine)
      try {
        return await mine.ended
      } finally {
        signal.removeEventListener('abort', onAbort)
        if (leading.get(trajectory) === mine) leading.delete(trajectory)
      }
    },
    async close() {
      for (const { stop } of leading.values()) stop.abort(new Error('the run is closing'))
      const closed = server.close()
      await calls.close()
      await closed
      runs.close()
      await pool.close()
    },
  }
}

/** Renderer that leaves the tools of agents out of prompts, for a recipe with `tools.inPrompt: false`. */
const withoutTools = (renderer: Renderer): TextRenderer => ({
  prompt: messages => renderer.prompt(messages, []),
  encode: text => renderer.encode(text),
  decode: tokens => renderer.decode(tokens),
  tokenBytes: () => renderer.tokenBytes(),
  describe: () => renderer.describe(),
})

/** The agents' program: a command that is started for each rollout, or a function in forks of one process. */
function programOf(agent: AgentConfig, env: Readonly<Record<string, string>>, fx: Effects): FunctionProgram {
  const { command, file, function: name, interpreter = pythonPath(), memoryMb = 0 } = agent
  if (command === undefined) return functionProgram({ file: resolve(file!), name, interpreter, memoryMb, env, fx })
  const placed = withFiles(command)
  return { run: (options, signal) => runProgram({ ...options, command: placed, memoryMb, fx }, signal), close() {} }
}

const verifyOf = ({ id, request: { task }, calls }: SessionState): VerifyAnswer => ({
  type: 'answer.verify',
  ...{ trajectory: id, attempt: 0, reward: task.reward, truth: task.truth, task },
  response: [...calls.tree.nodes.values()]
    .filter(({ started: { label }, finished }) => finished !== null && finished.finish !== 'failed' && isOwn(label))
    .map(({ finished }) => finished!.text)
    .join('\n'),
})

const isOwn = (label: string): boolean => label === 'main' || label === 'compaction'

/** Keeps what an agent wrote, below the run's directory: `agents/GROUP/MEMBER.OPENING.log`. */
function keepLog(directory: string, name: string, { output, outputBytes, how, code, signal }: ProgramEnding): void {
  const file = join(directory, 'agents', `${name}.log`)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, `${output}\n[${how} ${code ?? signal ?? ''}; ${outputBytes} bytes written]\n`)
}
