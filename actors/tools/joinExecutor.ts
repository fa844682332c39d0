/**
 * Joins a tool executor to a run, here or on another machine: the executor offers slots (room for calls), and the
 * dispatcher assigns a call to each free slot.
 *
 * in   tools by name, how many calls they take at once        out  executor.slots, tool.completed, tools.ended
 * Invariant: the executor offers no slot before it reads its inbox. After `leave`, calls that the executor had not
 * begun go to other executors at once. The caller owns the tools, which are not closed here. Several executors need a
 * `dispatcher` that is hosted on the same run, on the single partition of `tool-calls`.
 */
import type { ExecutorId } from '../../messages/ids'
import type { Embedded } from '../../runtime/embed'
import { TroupeError } from '../../runtime/errors'
import type { CloseOptions } from '../../runtime/host/host'
import { type ExecutorPortOptions, executorKey, executorPort } from './executorPort'
import { inboxExecutor } from './inboxExecutor'

export interface ExecutorOptions extends Pick<ExecutorPortOptions, 'lanes' | 'tools' | 'turnaroundMs' | 'sandbox'> {
  /**
   * Name of the executor in every tool.completed. Two executors may share a name: each start has an incarnation (a
   * random id) of its own.
   */
  readonly id: ExecutorId
  /**
   * Time in ms between two reports of the executor; keep it well below the dispatcher's `leaseMs` (default: 5000).
   * Default: 1000.
   */
  readonly offerEveryMs?: number
  /** Called with the error when the executor has given up, or was refused. Default: `onFailed` of the embedding. */
  readonly onFailed?: (error: Error) => void
}

export interface JoinedExecutor {
  /**
   * Gives back the calls that have not begun, waits up to `drainMs` milliseconds (default: 0) for running calls, and
   * aborts those that still run.
   */
  leave(options?: CloseOptions): Promise<void>
}

/**
 * Joins the executor; resolves once the executor reads its inbox. Throws `config.calls_partitioned` if the topic
 * `tool-calls` has several partitions, which only a topic that the user created can have.
 */
export async function joinExecutor(
  { journal, fx, host }: Pick<Embedded, 'journal' | 'fx' | 'host'>,
  { offerEveryMs = 1000, onFailed, ...options }: ExecutorOptions,
): Promise<JoinedExecutor> {
  const { id } = options
  const partitions = await journal.partitionsOf('tool-calls')
  if (partitions > 1) {
    throw new TroupeError('config.calls_partitioned', {
      boundary: 'config',
      retriable: false,
      message: `the topic of tool calls has ${partitions} partitions, but a dispatcher must read all calls; expected 1 partition`,
      hint: 'create the topic with 1 partition, or host `toolExecutor`, which runs every call of the partitions that it owns',
    })
  }
  const incarnation = fx.unique()
  const port = executorPort({ ...options, incarnation, fx, run: journal.run })
  const hosted = await host({
    behaviour: inboxExecutor(id, incarnation),
    // Other executors' calls are not decoded.
    feeds: [{ topic: 'inboxes', from: 'latest', key: id }],
    // The consumer group is this executor's own: a shared one would divide the topic, which each executor must read
    // whole.
    group: `tool-executor.${incarnation}`,
    perform: port.perform,
    keyOf: executorKey,
    tickMs: offerEveryMs,
    ...(onFailed === undefined ? {} : { onFailed }),
  })
  await hosted.live
  return {
    async leave(how) {
      try {
        await journal.append([port.leave()])
      } finally {
        // The host closes even if the log cannot be written: the dispatcher then assigns the calls elsewhere when their
        // leases end.
        await hosted.close(how)
      }
      // The aborted calls are no longer held, so the dispatcher can assign them elsewhere.
      await journal.append([{ ...port.leave(), held: [] }])
    },
  }
}
