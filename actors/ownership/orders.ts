/**
 * Orders of a person (`control.obeyed`) as roles fold them.
 *
 * in   whether a pause holds, the next order        out  whether it holds afterwards
 * Invariant: a drain takes a pause back, since a paused run would never be drained; an abort leaves it as it was.
 */
import type { ControlOrder } from '../../messages/facts'

export const pausedAfter = (paused: boolean, order: ControlOrder): boolean =>
  order === 'pause' || (paused && order === 'abort')
