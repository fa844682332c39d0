/**
 * The actions of the shown run: whether they are allowed, and what became of those that were started.
 *
 * in   a run; an action to start or to stop        out  signals that views read
 * Invariant: the server is asked when a run is shown, after each request to start or stop an action, and every `pollMs`
 * while an action runs.
 */
import { signal } from '@preact/signals'
import type { ActionRequest, Actions } from '../../apiActions'
import { ask, type Failure, send } from './ask'
import { hasToken } from './token'

const pollMs = 700

const none: Actions = { allowed: false, actions: [] }
export const actions = signal<Actions>(none)
/** Reason why the latest request to start or stop an action failed; undefined if it did not. */
export const refusedAction = signal<Failure | undefined>(undefined)

let shown = ''
let timer: ReturnType<typeof setTimeout> | undefined

/** True if this tab may start actions. */
export const mayAct = (): boolean => actions.value.allowed && hasToken()

const pathOf = (run: string): string => `runs/${encodeURIComponent(run)}/actions`

export function showActions(run: string): void {
  if (shown !== run) {
    actions.value = none
    refusedAction.value = undefined
  }
  shown = run
  void load()
}

async function load(): Promise<void> {
  clearTimeout(timer)
  const run = shown
  const found = await ask<Actions>(pathOf(run)).catch(() => undefined)
  if (run !== shown) return
  if (found !== undefined) actions.value = found
  if (actions.value.actions.some(one => one.state === 'running')) timer = setTimeout(load, pollMs)
}

export async function act(run: string, request: ActionRequest): Promise<void> {
  await sent(pathOf(run), request)
}

export async function stopAction(run: string, id: string): Promise<void> {
  await sent(`${pathOf(run)}/${encodeURIComponent(id)}/stop`, {})
}

async function sent(path: string, body: object): Promise<void> {
  refusedAction.value = undefined
  await send(path, body).catch((failure: Failure) => {
    refusedAction.value = failure
  })
  await load()
}
