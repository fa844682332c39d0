/**
 * Keeps the server's answer to a request while a view is shown, and asks again when the run has grown.
 *
 * in   a path, or undefined to ask nothing        out  the latest answer; the error, if the latest request failed
 * Invariant: growth does not abort a running request: after its answer the path is asked again. So a view of a fast run
 * shows something even if every answer takes longer than the run takes to grow.
 */
import { useEffect, useReducer, useRef, useState } from 'preact/hooks'
import { ask, Failure, isStatic } from './ask'
import { grown } from './live'

export interface Answered<T> {
  readonly value: T | undefined
  readonly failure: Failure | undefined
}

/** Milliseconds after which a failed or refused request is sent again: the server may restart, the run may begin. */
const retryMs = 2000

/**
 * `follows`: true to ask again when the run has grown. `againMs`: time in ms from an answer to the next request, also
 * without growth; undefined: none.
 */
export function useData<T>(
  path: string | undefined,
  follows = true,
  againMs: (value: T) => number | undefined = () => undefined,
): Answered<T> {
  const [state, set] = useState<Answered<T> & { readonly path: string | undefined }>({
    path,
    value: undefined,
    failure: undefined,
  })
  const growth = follows ? grown.value : 0
  const [tries, again] = useReducer((n: number) => n + 1, 0)
  const asked = useRef({ growth, isOpen: false })
  useEffect(() => {
    if (path === undefined) return
    const ending = new AbortController()
    let retry: ReturnType<typeof setTimeout> | undefined
    const askAfter = (ms: number) => {
      retry = setTimeout(() => again(undefined), ms)
    }
    asked.current = { growth, isOpen: true }
    ask<T>(path, ending.signal).then(
      value => {
        asked.current = { growth, isOpen: false }
        set({ path, value, failure: undefined })
        const ms = isStatic ? undefined : againMs(value)
        if (follows && grown.peek() !== growth) askAfter(0)
        else if (ms !== undefined) askAfter(ms)
      },
      (thrown: unknown) => {
        if (ending.signal.aborted) return
        asked.current = { growth, isOpen: false }
        const failure =
          thrown instanceof Failure
            ? thrown
            : new Failure(
                'dashboard.unreachable',
                'the server of this page cannot be reached, or its answer is not JSON',
                'check that `troupe dashboard` still runs at this address; the page asks again every 2 s',
              )
        // The last answer stays in view while the server cannot be reached.
        askAfter(retryMs)
        set(before => ({ path, value: before.path === path ? before.value : undefined, failure }))
      },
    )
    return () => {
      clearTimeout(retry)
      ending.abort()
    }
  }, [path, tries])
  useEffect(() => {
    if (path !== undefined && !asked.current.isOpen && asked.current.growth !== growth) again(undefined)
  }, [path, growth])
  return state.path === path ? state : { value: undefined, failure: undefined }
}
