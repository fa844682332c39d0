/**
 * A sandbox whose programs run on executors in other processes, reached over a bus. The front of a judge (the process
 * that takes submissions) runs the submissions in it.
 *
 * in   requests, as any sandbox gets them        out  results from the executors that joined (`judgeExecutor.ts`)
 * Invariant: a call is answered once, however many executors ran it. When an executor dies, the dispatcher, which runs
 * in this process, assigns its calls again. Only one dispatcher may do that, so only one front may be open for a
 * judge's name at a time.
 */
import type { EndCode } from '../../../messages/commands'
import { epoch, groupId, trajectoryId } from '../../../messages/ids'
import type { Embedded } from '../../../runtime/embed'
import { type Behaviour, nothing } from '../../../runtime/host/behaviour'
import { aborted, closed, rejected } from '../../../sandbox/refusals'
import type { RunRequest, RunResult, Sandbox, SandboxLevel } from '../../../sandbox/sandbox'
import { DISPATCH_LINGER_MS, type DispatcherOptions } from '../dispatcher'
import { type FrontState, frontDispatcher } from './frontDispatcher'
import { MAX_CALL_CHARS, SANDBOX_TOOL } from './judgeExecutor'

export interface BusSandbox extends Sandbox {
  /** Number of executors that have joined and have neither left nor died. */
  readonly executors: number
}

export interface BusSandboxOptions extends DispatcherOptions {
  readonly onFailed?: (error: Error) => void
}

interface Open {
  readonly answer: (result: RunResult) => void
  readonly refuse: (error: Error) => void
}

const LEVELS: readonly SandboxLevel[] = ['none', 'degraded', 'full']
/** Time in ms that is added to a call's own timeout; a call without an answer for that sum is sent again. */
const AGAIN_MS = 60_000

/**
 * Opens the sandbox; resolves once it reads calls and answers from the bus. Calls wait until an executor has joined.
 */
export async function openBusSandbox(troupe: Embedded, options: BusSandboxOptions = {}): Promise<BusSandbox> {
  const { journal, fx } = troupe
  const { onFailed, ...limits } = options
  const failed = onFailed === undefined ? {} : { onFailed }
  const front = `front-${fx.unique().slice(0, 8)}`
  const group = groupId(front)
  const calls = new Map<string, Open>()
  let [asked, isClosed] = [0, false]

  const behaviour = frontDispatcher(limits)
  let state: FrontState = behaviour.initial()
  const dispatching = await troupe.host({
    behaviour: { ...behaviour, initial: () => (state = behaviour.initial()) },
    feeds: [{ topic: 'tool-calls', from: 'latest' }],
    lingerMs: DISPATCH_LINGER_MS,
    ...failed,
  })
  const answers: Behaviour<null, EndCode, EndCode> = {
    name: 'judge-answers',
    initial: () => null,
    evolve: state => state,
    decide: (_state, input) => (input.type === 'code.ended' ? { ...nothing, requests: [input] } : nothing),
    pending: () => nothing,
  }
  const answering = await troupe.host({
    behaviour: answers,
    feeds: [{ topic: 'inboxes', from: 'latest', key: front }],
    group: `judge-answers.${front}`,
    keyOf: ({ call }) => call,
    async perform({ call, result }) {
      calls.get(placeOf(call))?.answer(result as unknown as RunResult)
      return undefined
    },
    ...failed,
  })
  await Promise.all([dispatching.live, answering.live])

  async function run(request: RunRequest, signal?: AbortSignal): Promise<RunResult> {
    if (isClosed) throw closed()
    if (signal?.aborted) throw aborted(signal)
    const { id, ...rest } = request
    if (request.session !== undefined) return rejected(id, noSessions)
    const chars = request.code.length + (request.stdin?.length ?? 0)
    if (chars > MAX_CALL_CHARS)
      return rejected(id, `code and input have ${chars} characters; a judge over a bus takes at most ${MAX_CALL_CHARS}`)
    const trajectory = trajectoryId(group, asked++)
    const ask = (attempt: number) =>
      journal.append([
        {
          ...{ type: 'tool.execute', trajectory, turn: 0, call: 0, attempt, epoch: epoch(0), tool: SANDBOX_TOOL },
          ...{ arguments: { front, request: rest }, timeoutMs: request.timeoutMs ?? 0, responseChars: 0 },
        },
      ])
    const place = `${trajectory}#0#0`
    let attempt = 0
    const again = setInterval(() => void ask(++attempt).catch(() => {}), (request.timeoutMs ?? 0) + AGAIN_MS).unref()
    const cancel = () => {
      void journal.append([{ type: 'tool.cancel', trajectory }]).catch(() => {})
      calls.get(place)?.refuse(aborted(signal!))
    }
    signal?.addEventListener('abort', cancel, { once: true })
    try {
      return await new Promise<RunResult>((resolve, reject) => {
        const answer = (result: RunResult) => resolve({ ...result, id })
        calls.set(place, { answer, refuse: reject })
        ask(attempt).catch(reject)
      })
    } finally {
      calls.delete(place)
      clearInterval(again)
      signal?.removeEventListener('abort', cancel)
    }
  }

  return {
    noSessions,
    get executors() {
      return state.calls.executors.size
    },
    /**
     * Number of calls that all executors together take at once; at least 1, since the judge sends its next call only
     * when one ends, and without an executor a first call has to wait here.
     */
    get lanes() {
      return Math.max(
        1,
        [...state.calls.executors.values()].reduce((sum, { slots }) => sum + slots, 0),
      )
    },
    get level() {
      const lowest = Math.min(...[...state.sandboxes.values()].map(({ level }) => LEVELS.indexOf(level)))
      return LEVELS[lowest] ?? 'none'
    },
    run,
    async close() {
      isClosed = true
      for (const { refuse } of calls.values()) refuse(closed())
      await answering.close()
      await dispatching.close()
    },
  }
}

const noSessions = 'a judge over a bus has no sessions'

/** Removes the attempt from a call's key. */
const placeOf = (key: string) => key.slice(0, key.lastIndexOf('#'))
