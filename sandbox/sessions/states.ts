/**
 * The states that cells of sessions fork from: paused processes in zygotes, counted by their users.
 *
 * in   states that cells left, users that come and go, zygotes that died      out  states; an order to end one without users
 * Invariant: a state that is not `gone` has a user. When the last user releases it, its zygote ends the process. Its
 * memory stays counted as long as a state that was forked from it may hold it.
 */

/** A namespace in a zygote. Its cells share one directory. */
export interface Space<Link> {
  readonly link: Link
  /** A cell left files here, or other things that forks share. */
  files: boolean
  /** Key of the state whose cell ran last here; 0 where it left none. */
  tip: number
  /** Settles when no cell runs here: one runs at a time. */
  turn: Promise<unknown>
}

export interface State<Link> {
  /** Name that the zygote knows it by. */
  readonly key: number
  readonly space: Space<Link>
  /** Memory counted for it: its own, and that of gone states which it alone may hold; at most `heldBytes`. */
  bytes: number
  /** All memory that it holds beyond the zygote's. */
  readonly heldBytes: number
  parent: State<Link> | undefined
  readonly forks: Set<State<Link>>
  /** Cells of all sessions that use it. */
  users: number
  /** Its process has ended, or is being ended. */
  gone: boolean
}

export class SessionStates<Link> {
  readonly #states = new Set<State<Link>>()
  #keys = 0
  #bytes = 0

  constructor(private readonly endProcess: (link: Link, key: number) => void) {}

  /** Memory of all paused cells. */
  get bytes(): number {
    return this.#bytes
  }

  get size(): number {
    return this.#states.size
  }

  /** Key of the next state; never 0, which means none. */
  nextKey(): number {
    this.#keys = (this.#keys % 0xffffffff) + 1
    return this.#keys
  }

  /** Adds a state with one user. */
  add(
    key: number,
    space: Space<Link>,
    parent: State<Link> | undefined,
    size: { readonly bytes: number; readonly heldBytes: number },
  ): State<Link> {
    const { bytes, heldBytes } = size
    const state: State<Link> = { key, space, parent, bytes, heldBytes, forks: new Set(), users: 1, gone: false }
    parent?.forks.add(state)
    this.#states.add(state)
    this.#bytes += bytes
    return state
  }

  release(state: State<Link>): void {
    state.users--
    if (state.users === 0) this.discard(state)
  }

  /** Ends a state: nothing forks from it any more. */
  discard(state: State<Link>): void {
    if (state.gone) return
    this.endProcess(state.space.link, state.key)
    this.#forget(state)
  }

  #forget(state: State<Link>): void {
    this.#states.delete(state)
    state.gone = true
    this.#passOn(state)
  }

  /** Passes the memory of a gone state to its only fork, or frees it. With two forks, which may share it, it stays counted. */
  #passOn(state: State<Link>): void {
    const { parent, forks, bytes } = state
    if (!state.gone || forks.size > 1) return
    const [fork] = forks
    this.#setBytes(state, 0)
    parent?.forks.delete(state)
    forks.clear()
    if (fork) {
      fork.parent = parent
      parent?.forks.add(fork)
      this.#setBytes(fork, Math.min(fork.heldBytes, fork.bytes + bytes))
    } else if (parent) this.#passOn(parent)
  }

  #setBytes(state: State<Link>, bytes: number): void {
    this.#bytes += bytes - state.bytes
    state.bytes = bytes
  }

  /** A zygote died, and every state in it. */
  zygoteLost(link: Link): void {
    for (const state of this.#states) if (state.space.link === link) this.#forget(state)
  }
}

/** True where a fork of the state finds what its cell left: files of a namespace are those of the cell that ran last in it. */
export function canFork<Link>(state: State<Link> | undefined): state is State<Link> {
  return state !== undefined && !state.gone && (!state.space.files || state.space.tip === state.key)
}
