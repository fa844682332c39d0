/**
 * The states that sessions fork from: paused processes, each with a zygote, shared by the cells that stand on it.
 *
 * in   what a cell left behind, who stands on it, zygotes that are gone      out  states, and `drop` for one that nobody needs
 * Invariant: a state that is not `gone` is held by somebody; the last one to let go has its zygote end the process. What it
 * held is counted on as long as one that was forked from it may hold it.
 */

/** A namespace of a zygote; its cells share one directory. */
export interface Space<Link> {
  readonly link: Link
  files: boolean
  /** The state that ran last in it. */
  tip: number
  /** One cell runs in it at a time. */
  turn: Promise<unknown>
}

export interface State<Link> {
  readonly key: number
  readonly space: Space<Link>
  /** What it holds beyond the states that it was forked from, and with what those held that are gone; at most `heldBytes`. */
  bytes: number
  readonly heldBytes: number
  parent: State<Link> | undefined
  readonly forks: Set<State<Link>>
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

  letGo(state: State<Link>): void {
    state.users--
    if (state.users === 0) this.lose(state)
  }

  /** It is not to be forked from any more; where its process is there, that ends. */
  lose(state: State<Link>): void {
    if (state.gone) return
    this.drop(state.space.link, state.key)
    this.#forget(state)
  }

  #forget(state: State<Link>): void {
    this.#states.delete(state)
    state.gone = true
    this.#settle(state)
  }

  /** What a state that is gone held is its only fork's now, or free. It stays counted while it has two, which may share it. */
  #settle(state: State<Link>): void {
    const { parent, forks, bytes } = state
    if (!state.gone || forks.size > 1) return
    const [fork] = forks
    this.#weigh(state, 0)
    parent?.forks.delete(state)
    forks.clear()
    if (fork) {
      fork.parent = parent
      parent?.forks.add(fork)
      this.#weigh(fork, Math.min(fork.heldBytes, fork.bytes + bytes))
    } else if (parent) this.#settle(parent)
  }

  #weigh(state: State<Link>, bytes: number): void {
    this.#bytes += bytes - state.bytes
    state.bytes = bytes
  }

  /** A zygote is gone, and every state with it. */
  lost(link: Link): void {
    for (const state of this.#states) if (state.space.link === link) this.#forget(state)
  }
}

/** Whether forking from it gives what the cell left: files of a namespace are those of the cell that ran last in it. */
export function usable<Link>(state: State<Link> | undefined): state is State<Link> {
  return state !== undefined && !state.gone && (!state.space.files || state.space.tip === state.key)
}
