/**
 * The states that cells of sessions fork from: paused processes in zygotes. Each counts its users: the cells that hold
 * it or are about to fork from it.
 *
 * in   states that cells left, users that come and go, zygotes that died
 * out  states; an order to end a state that has no users, or that no cell can fork from
 * Invariant: a state that is not `gone` has a user. When the last user releases it, its zygote ends the process. Its
 * memory stays counted as long as a state that was forked from it may hold it.
 */

/** Namespace in a zygote (a warm interpreter that forks a child for each call). Its cells share one directory. */
export interface Space<Link> {
  readonly link: Link
  /** true: a cell left files in the namespace, or other things that forks share. */
  files: boolean
  /** Key of the state of the cell that ran last in the namespace; 0 if that cell left none. */
  tip: number
  /** Promise that settles when no cell runs in the namespace: one runs at a time. */
  turn: Promise<unknown>
}

export interface State<Link> {
  /** Key under which the zygote knows the state. */
  readonly key: number
  readonly space: Space<Link>
  /**
   * Bytes counted for the state: its own memory, and that of gone states which only it may still hold; at most
   * `heldBytes`.
   */
  bytes: number
  /** Bytes of memory that the state holds beyond the zygote's. */
  readonly heldBytes: number
  parent: State<Link> | undefined
  readonly forks: Set<State<Link>>
  /** Number of cells, of all sessions, that hold the state, plus the cells that wait or run to fork from it. */
  users: number
  /** true: the state's process has ended, or is being ended. */
  gone: boolean
}

export class SessionStates<Link> {
  readonly #states = new Set<State<Link>>()
  #keys = 0
  #bytes = 0

  constructor(private readonly endProcess: (link: Link, key: number) => void) {}

  /** Memory of all paused cells, in bytes, with that of gone states that several forks may still share. */
  get bytes(): number {
    return this.#bytes
  }

  get size(): number {
    return this.#states.size
  }

  /** Returns the key for the next state; never 0, which means no state. */
  nextKey(): number {
    this.#keys = (this.#keys % 0xffffffff) + 1
    return this.#keys
  }

  /** Adds a state, with one user: the cell that left it. */
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

  /**
   * Passes the memory of a gone state on to its only fork; without a fork it no longer counts. If the state has several
   * forks, which may share the memory, it stays counted.
   */
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

  /** Forgets every state of a zygote that died. */
  zygoteLost(link: Link): void {
    for (const state of this.#states) if (state.space.link === link) this.#forget(state)
  }
}

/**
 * Returns true if a fork of the state sees everything that the state's cell left. Cells of a namespace share one
 * directory, so if there are files in it, only the cell that ran last still finds its own.
 */
export function canFork<Link>(state: State<Link> | undefined): state is State<Link> {
  return state !== undefined && !state.gone && (!state.space.files || state.space.tip === state.key)
}
