/**
 * A user's reward function in Python, in processes of its own.
 *
 * in   an answer and its task
 * out  a score, or a fault: it raised, timed out, ended its process, returned no number, could not be imported again
 * Invariant: an attempt at a question ends within `timeoutMs` after a process has taken it. A process that hangs
 * or dies costs only its current question; it is killed with all its child processes, and another takes its place. A
 * process that SIGKILL from outside ends costs nothing: its question is asked again, its start repeated, up to three
 * times in all. All processes end with this one.
 */
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { TroupeError } from '../../runtime/errors'
import { mostTries } from '../../sandbox/retryKilled'
import { type RewardLane, type RewardLaneOptions, startRewardLane } from './rewardLane'

/**
 * Options of the reward processes. `file`: a Python file. `module`: a module that Python finds
 * in the working directory, or else among its installed packages.
 */
export interface RewardProcessOptions extends RewardLaneOptions {
  /** Milliseconds that a process may take for one question. */
  readonly timeoutMs: number
  /** Number of processes. Default: 1. */
  readonly processes?: number
}

type RewardReply =
  | { readonly score: number; readonly why?: string }
  /** Kind of failure (`fault`: raised, timeout, died, no-number, not-loaded) and its description. */
  | { readonly fault: string; readonly why: string }

export interface RewardProcesses {
  /**
   * Scores an answer. `task` is passed to the function as JSON. Rejects after `close`, when the signal aborts, or when
   * 65,536 answers wait already.
   */
  judge(answer: string, task: Readonly<Record<string, unknown>>, signal?: AbortSignal): Promise<RewardReply>
  close(): Promise<void>
}

interface Ask {
  readonly id: number
  readonly answer: string
  readonly task: object
  readonly settle: (reply: RewardReply) => void
  readonly reject: (error: Error) => void
  tries: number
  /** True once nobody waits for the answer: the question is not asked again. */
  isAborted: boolean
}

const maxWaiting = 65_536

/**
 * Starts all processes and waits until the function is imported.
 * @throws TroupeError config.reward_not_loaded if the file does not exist or the import fails, with Python's message
 */
export async function startRewardProcesses(given: RewardProcessOptions): Promise<RewardProcesses> {
  const file = given.file === undefined ? undefined : currentPlace(given.file)
  const options = file === undefined ? given : { ...given, file }
  const { timeoutMs, processes = 1 } = options
  if (file !== undefined && !existsSync(file)) throw notLoaded(options, `the file ${resolve(file)} does not exist`)
  const waiting: Ask[] = []
  /** All live processes: those that start, run a question or are idle. */
  const lanes = new Set<RewardLane>()
  /** Processes that are ready and have no question. */
  const idle = new Set<RewardLane>()
  let ids = 0
  let closed = false

  /**
   * Starts a process, again if it is killed before it is ready; a ready process that ends is replaced. Resolves with
   * undefined once a process is ready, or with the reason why none is.
   */
  async function open(): Promise<string | undefined> {
    for (let starts = 1; ; starts++) {
      const lane = startRewardLane(options)
      lanes.add(lane)
      const why = await lane.ready
      if (why === undefined) {
        void lane.ended.then(() => {
          lanes.delete(lane)
          idle.delete(lane)
          if (!closed) void open()
        })
        idle.add(lane)
        serve()
        return undefined
      }
      lane.kill()
      await lane.ended
      lanes.delete(lane)
      if (!closed && lane.wasKilled() && starts < mostTries) continue
      // A failed import is not retried in a loop: the next question starts a process again. Waiting questions get the
      // reason if no other process is there.
      if (lanes.size === 0) for (const ask of waiting.splice(0)) ask.settle({ fault: 'not-loaded', why })
      return why
    }
  }

  function serve(): void {
    for (const lane of idle) {
      const ask = waiting.shift()
      if (ask === undefined) return
      idle.delete(lane)
      give(lane, ask)
    }
  }

  function give(lane: RewardLane, ask: Ask): void {
    const { id, answer, task, settle } = ask
    ask.tries++
    let over = false
    const end = (reply: RewardReply) => {
      if (over) return
      over = true
      clearTimeout(timer)
      settle(reply)
      if (!('fault' in reply) || reply.fault === 'raised' || reply.fault === 'no-number') {
        idle.add(lane)
        serve()
      } else lane.kill()
    }
    const timer = setTimeout(() => end({ fault: 'timeout', why: `no score within ${timeoutMs} ms` }), timeoutMs)
    void lane.ended.then(how => {
      if (over || closed || ask.isAborted || !lane.wasKilled() || ask.tries === mostTries) {
        end({ fault: 'died', why: `its process ${how}` })
        return
      }
      over = true
      clearTimeout(timer)
      waiting.unshift(ask)
      serve()
    })
    lane.onLine = ({ id: of, score, fault = 'raised', why }) => {
      if (of !== id) return
      end(score === undefined ? { fault, why: why ?? '' } : { score, ...(why === undefined ? {} : { why }) })
    }
    lane.send({ id, answer, task })
  }

  async function close(): Promise<void> {
    closed = true
    for (const ask of waiting.splice(0)) ask.reject(gone())
    const all = [...lanes]
    for (const lane of all) lane.kill()
    await Promise.all(all.map(lane => lane.ended))
  }

  const whys = await Promise.all(Array.from({ length: processes }, () => open()))
  const why = whys.find(one => one !== undefined)
  if (why !== undefined) {
    await close()
    throw notLoaded(options, why)
  }
  return {
    async judge(answer, task, signal) {
      signal?.throwIfAborted()
      if (closed) throw gone()
      if (waiting.length >= maxWaiting) throw overloaded(waiting.length)
      return new Promise<RewardReply>((settle, reject) => {
        const onAbort = () => {
          ask.isAborted = true
          const at = waiting.indexOf(ask)
          if (at >= 0) waiting.splice(at, 1)
          reject(signal!.reason)
        }
        signal?.addEventListener('abort', onAbort, { once: true })
        const ask: Ask = {
          tries: 0,
          isAborted: false,
          id: ids++,
          answer,
          task,
          settle: reply => {
            signal?.removeEventListener('abort', onAbort)
            settle(reply)
          },
          reject: error => {
            signal?.removeEventListener('abort', onAbort)
            reject(error)
          },
        }
        waiting.push(ask)
        if (lanes.size < processes) void open()
        serve()
      })
    },
    close,
  }
}

/** Replaces the path that earlier runs recorded for the environments' reward file by the file's path today. */
function currentPlace(file: string): string {
  return existsSync(file)
    ? file
    : file.replace(/(^|\/)kernels\/environments\/reward\.py$/, '$1recipes/environment/python/reward.py')
}

function notLoaded({ file, module, function: name }: RewardProcessOptions, why: string): TroupeError {
  return new TroupeError('config.reward_not_loaded', {
    boundary: 'config',
    retriable: false,
    message: `the reward function '${name}' of ${file ?? `module ${module}`} cannot be used: ${why}`,
    hint: 'remove this cause; reward.file (or reward.module) and reward.function name a function (answer, task) → number or {score, why}, and reward.interpreter the Python that imports it',
  })
}

const gone = () =>
  new TroupeError('verifier.closed', {
    boundary: 'verifier',
    retriable: true,
    message: 'the reward processes are closed, so the answer was not scored',
  })

const overloaded = (n: number) =>
  new TroupeError('verifier.overloaded', {
    boundary: 'verifier',
    retriable: true,
    message: `the queue of the reward function is full: ${n} answers wait already`,
  })
