/**
 * The states that sessions fork from: paused processes, each with a zygote, shared by the cells that stand on it.
 *
 * in   what a cell left behind, who stands on it, zygotes that are gone      out  states, and `drop` for one that nobody needs
 * Invariant: a state that is not `gone` is held by somebody; the last one to let go has its zygote end the process.
 */

/** A namespace of a zygote; its cells share one directory. */
export interface Space<Link> {
  readonly link: Link
  files: boolean
  /** The state that ran last in it. */
  tip: number
}

export interface State<Link> {
  readonly key: number
  readonly space: Space<Link>
  readonly bytes: number
  /** Cells that stand on it, over all sessions. */
  users: number
  gone: boolean
}

export class SessionStates<Link> {
  readonly #states = new Set<State<Link>>()
  #keys = 0
  #bytes = 0

  constructor(private readonly drop: (link: Link, key: number) => void) {}

  /** Memory that the paused cells hold for themselves. */
  get bytes(): number {
    return this.#bytes
  }

  get size(): number {
    return this.#states.size
  }

  /** The key of the next state; never 0, which is none. */
  nextKey(): number {
    this.#keys = (this.#keys % 0xffffffff) + 1
    return this.#keys
  }

  /** With one user. */
  add(key: number, space: Space<Link>, bytes: number): State<Link> {
    const state = { key, space, bytes, users: 1, gone: false }
    this.#states.add(state)
    this.#bytes += bytes
    return state
  }

  letGo(state: State<Link>): void {
    state.users--
    if (state.users > 0 || state.gone) return
    this.drop(state.space.link, state.key)
    this.forget(state)
  }

  /** Its process is no more. */
  forget(state: State<Link>): void {
    if (this.#states.delete(state)) this.#bytes -= state.bytes
    state.gone = true
  }

  /** A zygote is gone, and every state with it. */
  lost(link: Link): void {
    for (const state of this.#states) if (state.space.link === link) this.forget(state)
  }
}

/** Whether forking from it gives what the cell left: files of a namespace are those of the cell that ran last in it. */
export function usable<Link>(state: State<Link> | undefined): state is State<Link> {
  return state !== undefined && !state.gone && (!state.space.files || state.space.tip === state.key)
}
