/**
 * State of the shown run's stream: the latest facts, the connection, and a number that grows with the run.
 *
 * in   a run and the cursor of its overview        out  signals that views read
 * Invariant: new facts change `grown` at most once a second, so that a fast run does not make the page ask all the
 * time. `grown` also changes when a lost connection is open again.
 */
import { signal } from '@preact/signals'
import type { StreamFact } from '../../api'
import { isStatic } from './ask'
import { type Connection, followFacts } from './stream'

const mostFacts = 200
const growMs = 1000

/** Number of facts that the stream has brought since the run was opened. */
export const seenFacts = signal(0)
export const latestFacts = signal<readonly StreamFact[]>([])
export const connection = signal<Connection | 'static' | 'none'>('none')
export const grown = signal(0)

let followed: { readonly run: string; stop(): void } | undefined
let timer: ReturnType<typeof setTimeout> | undefined

/** Follows a run from a cursor; does nothing if the run is followed already. */
export function followRun(run: string, cursor: string): void {
  if (followed?.run === run) return
  unfollow()
  if (isStatic) {
    connection.value = 'static'
    return
  }
  const stop = followFacts(run, cursor, {
    facts(facts) {
      seenFacts.value += facts.length
      latestFacts.value = [...facts].reverse().concat(latestFacts.value).slice(0, mostFacts)
      timer ??= setTimeout(() => {
        timer = undefined
        grown.value++
      }, growMs)
    },
    connection(state) {
      // After a lost connection a new server may answer, for a run that has grown meanwhile: the views ask again.
      if (state === 'open' && connection.value === 'lost') grown.value++
      connection.value = state
    },
  })
  followed = { run, stop }
}

export function unfollow(): void {
  followed?.stop()
  followed = undefined
  clearTimeout(timer)
  timer = undefined
  latestFacts.value = []
  seenFacts.value = 0
  connection.value = 'none'
}
