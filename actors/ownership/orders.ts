/**
 * Decides from the orders that a person gave (`control.obeyed`) whether a run is paused.
 *
 * in   whether the run was paused, the next order        out  whether it is paused afterwards
 * Invariant: resume and drain end a pause, since a paused run would never be drained; an abort leaves a pause as it is.
 */
import type { ControlOrder } from '../../messages/facts'

export const pausedAfter = (paused: boolean, order: ControlOrder): boolean =>
  order === 'pause' || (paused && order === 'abort')
