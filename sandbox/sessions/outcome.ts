/**
 * The outcome of one call that a zygote ran, with what a session needs to know of it. `Link` is the connection to a zygote.
 */
import { rejected } from '../refusals'
import type { RunResult } from '../sandbox'

export interface Outcome<Link> {
  readonly result: RunResult
  /** The paused process that a session's cell left behind: its zygote, its own memory, and all that it may come to hold. */
  readonly kept: { readonly link: Link; readonly bytes: number; readonly heldBytes: number } | undefined
  /** The session has files, or other things that its forks share. */
  readonly files: boolean
  /** The state to fork from does not exist (any more). */
  readonly orphan?: true
}

/** @param id the request's id */
export const orphan = (id: string) =>
  ({
    result: rejected(id, 'the state that the cell forks from was lost'),
    files: false,
    kept: undefined,
    orphan: true,
  }) as const
