/**
 * Outcome of one call that a zygote (a warm interpreter that forks a child for each call) ran, with the facts that a
 * session needs about it. `Link` is the connection to a zygote.
 */
import { rejected } from '../refusals'
import type { RunResult } from '../sandbox'

export interface Outcome<Link> {
  readonly result: RunResult
  /**
   * Paused process that a session's cell left: its zygote, its own memory (`bytes`), and all memory that it may come to
   * hold (`heldBytes`).
   */
  readonly kept: { readonly link: Link; readonly bytes: number; readonly heldBytes: number } | undefined
  /** true: the cell left files, open descriptors or shared memory, which forks of its process would share. */
  readonly files: boolean
  /**
   * true: the call did not run, because it could not fork from its parent state: the state is lost, another cell ran
   * since and left files that both would share, or the fork itself failed.
   */
  readonly orphan?: true
}

/** Returns the outcome of a cell that could not fork from its parent state. @param id the request's id */
export const orphan = (id: string) =>
  ({
    result: rejected(id, 'the state that the cell forks from was lost, or could not be forked'),
    files: false,
    kept: undefined,
    orphan: true,
  }) as const
