/**
 * Sessions: notebooks whose last two cells stay as paused processes (states). A cell forks from the process of the cell
 * before it, so its cost does not grow with the number of cells.
 *
 * in   cell k of a session, with its history if this sandbox may not know it      out  the cell's result
 * Invariant: cell k sees what cells 0 to k-1 made and nothing else, whatever was evicted, lost or run twice meanwhile.
 * If that state cannot be restored, the cell does not run. Files belong to a namespace, which a session shares with its
 * copies: if another cell may have changed them, the session is rebuilt by running its cells again. A killed cell
 * leaves no state; the next cell forks from the state before it.
 */
import { createHash } from 'node:crypto'
import { type Call, callOf } from '../limits'
import { aborted, queueFull, rejected } from '../refusals'
import type { RunRequest, RunResult, RunStatus, SessionPlace } from '../sandbox'
import { type Outcome, orphan } from './outcome'
import { type CellInput, type CheckedCell, checkCell } from './request'
import { canFork, SessionStates, type State } from './states'

/** Interface of the pool that sessions use; `Link` is the connection to a zygote. */
export interface SessionPort<Link> {
  /**
   * Upper bound on the memory of all paused cells, in bytes; above it the least recently used sessions lose their
   * states.
   */
  readonly memoryBytes: number
  /**
   * Upper bound on the paused cells of all sessions; above it, too, the least recently used sessions lose their states.
   */
  readonly states: number
  readonly noSessions: string | undefined
  readonly lanes: number
  readonly queueLimit: number
  submit(
    id: string,
    call: Call,
    place: { state: number; parent: number; seed: bigint; link: Link | undefined },
    signal: AbortSignal | undefined,
    client: string,
  ): Promise<Outcome<Link>>
  drop(link: Link, state: number): void
}

interface Cell<Link> {
  /** Id of the session: its calls take turns with those of other clients under this name. */
  readonly client: string
  readonly input: CellInput
  readonly seed: bigint
  state: State<Link> | undefined
  /** Status with which the cell ended; undefined for a cell that is known from a history and has not run here. */
  ended: RunStatus | undefined
  /** true: the cell left no state, and `state` is that of the cell before it. */
  void: boolean
}

interface Session<Link> {
  readonly cells: Cell<Link>[]
  /** Promise that settles when no cell of the session runs: one runs at a time. */
  turn: Promise<unknown>
  /** Number of the session's cells that run or wait. */
  open: number
}

/** Number of states that a session keeps: its last one, and the one before it in case the last cell is run again. */
const KEPT = 2
/** Upper bound on remembered sessions, applied when a cell is requested: the least recently used sessions end. */
const SESSIONS = 20_000
/**
 * Upper bound on the tries of one cell: a try fails when the state that the cell forks from, or its zygote, is lost.
 */
const ATTEMPTS = 3

export class Sessions<Link> {
  /** Sessions by id, least recently used first. */
  readonly #sessions = new Map<string, Session<Link>>()
  readonly #states: SessionStates<Link>
  #open = 0

  constructor(private readonly port: SessionPort<Link>) {
    this.#states = new SessionStates((link, key) => port.drop(link, key))
  }

  /** Memory of all paused cells, in bytes. */
  get bytes(): number {
    return this.#states.bytes
  }

  /** Runs a cell. It may be requested before the cells before it have ended: it waits for them. */
  run(request: RunRequest, place: SessionPlace, signal: AbortSignal | undefined): Promise<RunResult> {
    const checked = checkCell(request, place, this.port.noSessions)
    if (typeof checked === 'string') return Promise.resolve(rejected(request.id, checked))
    const { lanes, queueLimit } = this.port
    if (this.#open >= lanes + queueLimit) return Promise.reject(queueFull(lanes, queueLimit))
    const { id } = checked
    const session = this.#sessionOf(id)
    this.#open++
    session.open++
    const turn = session.turn
      .then(() => this.#runCell(session, request.id, checked, signal))
      .finally(() => {
        this.#open--
        session.open--
        if (this.#sessions.get(id) !== session)
          this.#releaseStates(session) // The session was ended while this cell ran or waited.
        else if (session.open === 0 && session.cells.length === 0) this.#sessions.delete(id)
      })
    session.turn = turn.catch(() => undefined)
    return turn
  }

  fork(from: string, cell: number, to: string): boolean {
    const source = this.#sessions.get(from)
    if (!source || !Number.isInteger(cell) || cell < 0 || cell >= source.cells.length) return false
    this.end(to)
    const cells = source.cells.slice(0, cell + 1).map(one => ({ ...one }))
    for (const { state } of cells) if (state) state.users++
    this.#sessions.set(to, { cells, turn: Promise.resolve(), open: 0 })
    this.#evict(to)
    return true
  }

  end(id: string): void {
    const session = this.#sessions.get(id)
    if (!session) return
    this.#sessions.delete(id)
    this.#releaseStates(session)
  }

  /** Forgets every state (a cell's paused process) of a zygote that died. */
  zygoteLost(link: Link): void {
    this.#states.zygoteLost(link)
    for (const { cells } of this.#sessions.values()) {
      for (const cell of cells) if (cell.state?.space.link === link) cell.state = undefined
    }
  }

  #sessionOf(id: string): Session<Link> {
    const session = this.#sessions.get(id) ?? { cells: [], turn: Promise.resolve(), open: 0 }
    this.#sessions.delete(id)
    this.#sessions.set(id, session)
    while (this.#sessions.size > SESSIONS) this.end(this.#sessions.keys().next().value as string)
    return session
  }

  async #runCell(
    { cells }: Session<Link>,
    requestId: string,
    checked: CheckedCell,
    signal?: AbortSignal,
  ): Promise<RunResult> {
    const { call, input, id, cell, history } = checked
    for (const given of history.slice(cells.length)) cells.push(newCell(id, cells.length, given))
    if (cell > cells.length) {
      const missing = `cell ${cell} of session ${JSON.stringify(id)} needs ${cell} earlier cells, this sandbox knows ${cells.length}`
      const why = `${missing}: give their code in session.history`
      return rejected(requestId, `session_unknown: ${why}`)
    }
    // When a cell runs again, the cells after it are forgotten.
    for (const gone of cells.splice(cell)) this.#releaseState(gone)
    const next = newCell<Link>(id, cell, input)
    const notes: string[] = []
    for (let attempt = 1; ; attempt++) {
      const before = await this.#parentState(cells, cell, notes, signal)
      const parent = 'lost' in before ? undefined : before.state
      const outcome = 'lost' in before ? undefined : await this.#run(requestId, next, call, parent, signal)
      if (!outcome || outcome.orphan) {
        if (attempt < ATTEMPTS) continue
        const why = 'lost' in before ? before.lost : `the state of the cell before it was lost ${ATTEMPTS} times`
        return rejected(requestId, `session_lost: session ${JSON.stringify(id)} could not be rebuilt: ${why}`)
      }
      this.#recordEnd(next, outcome.result.status, parent, outcome.kept !== undefined)
      cells[cell] = next
      for (const old of cells.slice(0, -KEPT)) this.#releaseState(old)
      this.#evict(id)
      if (notes.length === 0) return outcome.result
      const { reason } = outcome.result
      return { ...outcome.result, reason: [...(reason === undefined ? [] : [reason]), ...notes].join('; ') }
    }
  }

  /**
   * Returns the state that cell `next` forks from (undefined for cell 0), and first runs the cells whose state is
   * missing. `lost` is the reason why that failed.
   */
  async #parentState(
    cells: readonly Cell<Link>[],
    next: number,
    notes: string[],
    signal: AbortSignal | undefined,
  ): Promise<{ readonly state: State<Link> | undefined } | { readonly lost: string }> {
    let first = next
    while (first > 0 && !canFork(cells[first - 1]?.state)) first--
    for (let n = first; n < next; n++) {
      const cell = cells[n]!
      const parent = cells[n - 1]?.state
      this.#releaseState(cell)
      if (cell.void) this.#recordEnd(cell, cell.ended, parent, false)
      else {
        // The cast is safe, since the cell's request was checked before.
        const call = callOf({ id: 'rebuilt', ...cell.input }, 0) as Call
        const { result, orphan, kept } = await this.#run('rebuilt', cell, call, parent, signal)
        const { status, reason } = result
        if (orphan || reason !== undefined) return { lost: `cell ${n}: ${reason}` }
        if (cell.ended !== undefined && (cell.ended !== status || (!cell.state && !kept))) {
          const stateless = cell.state ? '' : ', and its state was not kept'
          this.#releaseState(cell)
          const once = `cell ${n} ended with '${cell.ended}' the first time, and with '${status}' when it was run again`
          return { lost: `${once}${stateless}` }
        }
        if (kept && !cell.state) return { lost: `the state of cell ${n} was evicted for another session` }
        this.#recordEnd(cell, status, parent, kept !== undefined)
        if (cell.void) notes.push(`cell ${n} of the history ended with '${status}' and left no state`)
      }
      const old = cells[n - KEPT]
      if (old) this.#releaseState(old)
    }
    return { state: cells[next - 1]?.state }
  }

  /** Records the end of a cell. A cell that left no state shares the state of the cell before it. */
  #recordEnd(
    cell: Cell<Link>,
    status: RunStatus | undefined,
    parent: State<Link> | undefined,
    leftState: boolean,
  ): void {
    cell.ended = status
    cell.void = !leftState
    if (!cell.void || !parent) return
    cell.state = parent
    parent.users++
  }

  /** Runs a cell once no other cell runs in its parent's namespace, which a session shares with its copies. */
  async #run(id: string, cell: Cell<Link>, call: Call, parent: State<Link> | undefined, signal?: AbortSignal) {
    if (!parent) return this.#runNow(id, cell, call, parent, signal)
    parent.users++ // This cell counts as a user, so that the parent state is not evicted while the cell waits.
    let isDue = false
    const turn = parent.space.turn.then(() => {
      if (signal?.aborted) throw aborted(signal)
      isDue = true
      return this.#runNow(id, cell, call, parent, signal)
    })
    parent.space.turn = turn.catch(() => undefined)
    let onAbort = () => {}
    const givenUp = new Promise<never>((_, reject) => {
      // Once a cell runs, its caller is answered only when it has ended.
      onAbort = () => isDue || reject(aborted(signal!))
      signal?.addEventListener('abort', onAbort, { once: true })
    })
    try {
      return await Promise.race([turn, givenUp])
    } finally {
      signal?.removeEventListener('abort', onAbort)
      this.#states.release(parent)
    }
  }

  async #runNow(
    id: string,
    cell: Cell<Link>,
    call: Call,
    parent: State<Link> | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Outcome<Link>> {
    const space = parent?.space
    if (parent && !canFork(parent)) return orphan(id) // Another cell changed the files, or the state ended.
    const key = this.#states.nextKey()
    const place = { state: key, parent: parent?.key ?? 0, seed: cell.seed, link: space?.link }
    const outcome = await this.port.submit(id, call, place, signal, cell.client).catch(thrown => {
      // The aborted cell may have changed files.
      if (space && signal?.aborted) Object.assign(space, { files: true, tip: 0 })
      throw thrown
    })
    const { kept } = outcome
    if (outcome.orphan && parent) this.#states.discard(parent)
    if (kept) {
      const own = space ?? { link: kept.link, files: false, tip: 0, turn: Promise.resolve() }
      own.files ||= outcome.files
      own.tip = key
      cell.state = this.#states.add(key, own, parent, kept)
    } else if (space) {
      space.files ||= outcome.files
      space.tip = 0
    }
    return outcome
  }

  /**
   * Frees states of the least recently used sessions, but not of session `busy`, until the bounds on states hold. The
   * cells stay known, to be run again.
   */
  #evict(busy: string): void {
    for (const [id, session] of this.#sessions) {
      if (this.#states.bytes <= this.port.memoryBytes && this.#states.size <= this.port.states) return
      if (id !== busy) this.#releaseStates(session)
    }
  }

  #releaseStates({ cells }: Session<Link>): void {
    for (const cell of cells) this.#releaseState(cell)
  }

  #releaseState(cell: Cell<Link>): void {
    const { state } = cell
    cell.state = undefined
    if (state) this.#states.release(state)
  }
}

function newCell<Link>(id: string, cell: number, input: CellInput): Cell<Link> {
  return { client: id, input, seed: seedOf(id, cell), state: undefined, ended: undefined, void: false }
}

/**
 * Returns the seed of a cell's random numbers, so that a rebuilt cell draws the same numbers. It is never 0, which
 * means the kernel's randomness.
 */
function seedOf(id: string, cell: number): bigint {
  return createHash('sha256').update(`${id}\0${cell}`).digest().readBigUInt64LE() | 1n
}
