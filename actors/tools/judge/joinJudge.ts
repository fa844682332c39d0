/**
 * Both ends of a judge over a bus: opens the front of a judge (the process with the HTTP API), and joins an executor to
 * a judge.
 *
 * in   an open bus, the judge's name      out  a sandbox for `openJudge`; an executor that leaves
 * Invariant: a judge keeps no facts about its calls, and its commands are dropped after RETENTION_MS. Records hold
 * whole calls, so the processes need no common directory.
 */
import type { RunId } from '../../../messages/ids'
import { executorId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import type { Bus } from '../../../runtime/bus/bus'
import { joinElection } from '../../../runtime/bus/leaderElection'
import { type EmbedOptions, openTroupe } from '../../../runtime/embed'
import { TroupeError } from '../../../runtime/errors'
import type { CodeEnvironment } from '../../../sandbox/environment'
import type { Sandbox } from '../../../sandbox/sandbox'
import { type JoinedExecutor, joinExecutor } from '../joinExecutor'
import { type BusSandbox, type BusSandboxOptions, openBusSandbox } from './busSandbox'
import { judgePort, SANDBOX_TOOL } from './judgeExecutor'

/** Time in ms for which the bus keeps the judge's commands; longer than needed, since a call ends within minutes. */
const RETENTION_MS = 600_000
export const JUDGE_NAME = 'judge'

interface JudgeOnBus extends Pick<EmbedOptions, 'log' | 'fx'> {
  readonly bus: Bus
  readonly name: RunId
  readonly onFailed: (error: Error) => void
}

const embedded = ({ bus, name, onFailed, ...options }: JudgeOnBus) =>
  openTroupe({ ...options, bus, run: name, onFailed, blobs: memoryBlobs(), commandRetentionMs: RETENTION_MS })

/**
 * Opens the front; waits while another one is open under that name. `onFailed` gets an error if another front takes
 * over.
 * @param onStandingBy called at once if this front has to wait for another one
 */
export async function openFront(
  options: JudgeOnBus & { readonly onStandingBy?: () => void } & Pick<BusSandboxOptions, 'leaseMs'>,
): Promise<BusSandbox> {
  const { onStandingBy, leaseMs, ...rest } = options
  const { bus, name, onFailed } = options
  const troupe = await embedded(rest)
  const closers = [() => troupe.close()]
  /** Closes what is open so far, the newest first. */
  const closeAll = async () => {
    for (const close of closers.splice(0).reverse()) await close()
  }
  let isElected = false
  let elected: () => void = () => {}
  const first = new Promise<void>(resolve => {
    elected = resolve
  })
  try {
    const seat = await joinElection(bus, name, 'scheduler', {
      onElected() {
        isElected = true
        elected()
      },
      onLost: () => onFailed(takenOver(name)),
      onError: onFailed,
    })
    closers.push(() => seat.release())
    if (!isElected) onStandingBy?.()
    await first
    const sandbox = await openBusSandbox(troupe, { onFailed, ...(leaseMs === undefined ? {} : { leaseMs }) })
    closers.push(() => sandbox.close())
    // Object.create keeps the sandbox's getters, such as `lanes`, whose values change while the sandbox is open.
    return Object.create(sandbox, { close: { value: closeAll } }) as BusSandbox
  } catch (thrown) {
    await closeAll()
    throw thrown
  }
}

/** Joins an executor: its sandbox runs the judge's calls until it leaves, or is refused (`onFailed` gets the error). */
export async function joinJudge(
  options: JudgeOnBus & {
    readonly executor: string
    readonly sandbox: Sandbox
    readonly environment: CodeEnvironment
    readonly offerEveryMs?: number
  },
): Promise<JoinedExecutor> {
  const { executor, sandbox, environment, offerEveryMs, ...rest } = options
  const { digest, python, packages } = environment
  const troupe = await embedded(rest)
  const joining = joinExecutor(troupe, {
    id: executorId(executor),
    lanes: sandbox.lanes,
    tools: { names: [SANDBOX_TOOL], perform: judgePort(sandbox) },
    sandbox: { level: sandbox.level, digest, python, packages },
    onFailed: options.onFailed,
    ...(offerEveryMs === undefined ? {} : { offerEveryMs }),
  })
  const joined = await joining.catch(async thrown => {
    await troupe.close()
    throw thrown
  })
  return {
    async leave(how) {
      await joined.leave(how)
      await troupe.close()
    },
  }
}

const takenOver = (name: string) =>
  new TroupeError('actor.replaced', {
    boundary: 'actor',
    retriable: true,
    message: `another front of the judge '${name}' took over: the heartbeats of this one came too late`,
    hint: 'start it again: it stands by until the other one ends',
  })
