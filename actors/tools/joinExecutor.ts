/**
 * Joins a tool executor to a run, here or on another machine: it offers its slots and gets calls by credits.
 *
 * in   tools by name, how many calls they take at once        out  executor.slots, tool.completed, tools.ended
 * Invariant: it offers nothing before it listens. After `leave`, calls that it had not begun go to others at once. The tools
 * stay the caller's and are not closed here. Several executors need a `dispatcher` that is hosted on the same run, on the
 * single partition of `tool-calls`.
 */
import type { ExecutorId } from '../../messages/ids'
import type { Embedded } from '../../runtime/embed'
import { TroupeError } from '../../runtime/errors'
import type { CloseOptions } from '../../runtime/host/host'
import { type ExecutorPortOptions, executorKey, executorPort } from './executorPort'
import { inboxExecutor } from './inboxExecutor'

export interface ExecutorOptions extends Pick<ExecutorPortOptions, 'lanes' | 'tools' | 'turnaroundMs'> {
  /** Name in every result. Two executors may share a name; each start counts for itself. */
  readonly id: ExecutorId
  /** Interval of its reports, ms; keep it well below the dispatcher's lease. Default 1000. */
  readonly offerEveryMs?: number
}

export interface JoinedExecutor {
  /** Gives back the calls that have not begun, lets running calls end for `drainMs`, and aborts the rest. */
  leave(options?: CloseOptions): Promise<void>
}

/**
 * Resolves once the executor listens. Throws `config.calls_partitioned` if the user's own topic has several partitions.
 */
export async function joinExecutor(
  { journal, fx, host }: Pick<Embedded, 'journal' | 'fx' | 'host'>,
  { offerEveryMs = 1000, ...options }: ExecutorOptions,
): Promise<JoinedExecutor> {
  const { id } = options
  const partitions = await journal.partitionsOf('tool-calls')
  if (partitions > 1) {
    throw new TroupeError('config.calls_partitioned', {
      boundary: 'config',
      retriable: false,
      message: `the topic of tool calls has ${partitions} partitions; a dispatcher must read all calls, so it needs exactly 1`,
      hint: 'give the topic a single partition, or host `toolExecutor`, which takes every call of its share of the partitions',
    })
  }
  const incarnation = fx.unique()
  const port = executorPort({ ...options, incarnation, fx, run: journal.run })
  const hosted = await host({
    behaviour: inboxExecutor(id, incarnation),
    feeds: [{ topic: 'inboxes', from: 'latest' }],
    // Each executor reads the whole topic and takes its own records: a shared consumer group would split it.
    group: `tool-executor.${incarnation}`,
    perform: port.perform,
    keyOf: executorKey,
    tickMs: offerEveryMs,
  })
  await hosted.live
  return {
    async leave(how) {
      await journal.append([port.leave()])
      await hosted.close(how)
      // Releases the calls that were aborted at the end.
      await journal.append([{ ...port.leave(), held: [] }])
    },
  }
}
