/** Options of a gateway's sessions: the settings that all share, the request to open one of them, and its result. */
import type { RolloutRequested, Task } from '../../messages/facts'
import type { Epoch } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'
import type { ConversationIndexOptions } from '../conversation/conversationIndex'
import type { OpenBound } from './openBound'
import type { SessionState } from './session'

export interface SessionsOptions extends ConversationIndexOptions {
  readonly journal: Journal
  readonly fx: Effects
  readonly seed: number
  readonly limits: RolloutRequested['limits']
  readonly sampling: RolloutRequested['sampling']
  readonly deadlineMs: number
  /** Epochs of this process, by partition: the offset of its claim of the partition. Empty inside a run. */
  readonly epochs: readonly Epoch[]
  /** Default time in ms after which a session expires: its calls are refused then, but it has no end in the log. */
  readonly ttlMs: number
  /** Bounds the sessions in use. Absent if the gateway has a key, whose holders alone open sessions. */
  readonly openBound?: OpenBound
  /** Present inside a run, which ends the sessions itself. `takesRewards`: agents may give their own reward. */
  readonly run?: { readonly takesRewards: boolean }
}

export interface OpenRequest {
  readonly id?: string
  readonly group?: string
  readonly slot?: number
  readonly groupSize?: number
  readonly task?: Partial<Pick<Task, 'id' | 'truth' | 'metadata' | 'reward'>>
  readonly policy?: 'train' | 'eval' | 'fork'
  readonly parent?: string
  readonly ttlMs?: number
  /** Key to open the session with. Default: a new one. */
  readonly key?: string
}

export interface Opened {
  readonly session: SessionState
  readonly opening: number
  readonly key: string
  readonly expiresAt: number
}
