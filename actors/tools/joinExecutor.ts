/**
 * A tool executor takes part in a run, here or on another machine: it offers its slots and gets calls by credits.
 *
 * in   tools by name, how many calls they take at once        out  executor.slots, tool.completed, tools.ended
 * Invariant: it offers nothing before it listens, and after `leave` what it had not begun is given to others at once.
 * The tools stay the caller's: they are not closed here. Several executors need a dispatcher (`dispatcher`) that is
 * hosted somewhere on the same run, on the single partition of `tool-calls`.
 */
import type { ExecutorId } from '../../messages/ids'
import type { Embedded } from '../../runtime/embed'
import { TroupeError } from '../../runtime/errors'
import type { CloseOptions } from '../../runtime/host/host'
import { type ExecutorPortOptions, executorKey, executorPort } from './executorPort'
import { inboxExecutor } from './inboxExecutor'

export interface ExecutorOptions extends Pick<ExecutorPortOptions, 'lanes' | 'tools' | 'turnaroundMs'> {
  /** Stands in every result. Two executors may have one name; each start counts for itself. */
  readonly id: ExecutorId
  /** How often it says that it is there, ms; well below the dispatcher's lease. Default 1000. */
  readonly offerEveryMs?: number
}

export interface JoinedExecutor {
  /** Gives back what it has not begun, lets what runs end for `drainMs`, and aborts the rest. */
  leave(options?: CloseOptions): Promise<void>
}

/** Resolves when it listens. Throws `config.calls_partitioned` where a topic of the user's own has several partitions. */
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
      message: `the topic of tool calls has ${partitions} partitions; a dispatcher has to see all calls`,
      hint: 'give it a single partition, or host `toolExecutor`, which takes every call of its share of the partitions',
    })
  }
  const incarnation = fx.unique()
  const port = executorPort({ ...options, incarnation, fx, run: journal.run })
  const hosted = await host({
    behaviour: inboxExecutor(id, incarnation),
    feeds: [{ topic: 'inboxes', from: 'latest' }],
    // Each reads the whole topic and takes what is its own: a consumer group would share it out.
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
      // What was aborted at the end is nobody's any more.
      await journal.append([{ ...port.leave(), held: [] }])
    },
  }
}
