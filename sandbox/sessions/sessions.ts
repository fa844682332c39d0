/**
 * Sessions: notebooks whose cells are kept. A cell forks from what the cell before left behind, so a turn costs the same
 * however many came before it.
 *
 * in   cell k of a session, its history where this sandbox may not know it      out  the cell's result
 * Invariant: cell k sees what cells 0 to k-1 made and nothing else, whatever was evicted, lost or asked twice meanwhile;
 * where that cannot be had again, it does not run. A state is forked from again only if that is what it still is: where a
 * cell has left files, which its namespace's later cells share, the session is rebuilt by running its cells. A cell that
 * was killed leaves nothing: the next one forks from the state before it.
 */
import { createHash } from 'node:crypto'
import { aborted, queueFull, rejected } from '../answers'
import { type Call, callOf } from '../limits'
import type { RunRequest, RunResult, RunStatus, SessionPlace } from '../sandbox'
import { type Outcome, orphan } from './outcome'
import { type Asked, type Asking, askingOf } from './request'
import { SessionStates, type State, usable } from './states'

/** What this needs of the pool; `Link` is a zygote. */
export interface SessionPort<Link> {
  readonly memoryBytes: number
  readonly noSessions: string | undefined
  readonly lanes: number
  readonly queueLimit: number
  submit(
    id: string,
    call: Call,
    place: { state: number; parent: number; seed: bigint; link: Link | undefined },
    signal: AbortSignal | undefined,
  ): Promise<Outcome<Link>>
  drop(link: Link, state: number): void
}

interface Cell<Link> {
  readonly asked: Asked
  readonly seed: bigint
  state: State<Link> | undefined
  /** Undefined where it is known from a history alone, and has not run here. */
  ended: RunStatus | undefined
  /** It was killed: the state is that of the cell before. */
  void: boolean
}

interface Session<Link> {
  readonly cells: Cell<Link>[]
  /** One cell of a session runs at a time. */
  turn: Promise<unknown>
  /** Cells that run or wait for their turn. */
  open: number
}

/** States that a session keeps: its last, and the one before it for a cell that is asked again. */
const KEPT = 2
const STATES = 400
const SESSIONS = 20_000
const ATTEMPTS = 3

export class Sessions<Link> {
  /** The longest unused first. */
  readonly #sessions = new Map<string, Session<Link>>()
  readonly #states: SessionStates<Link>
  #open = 0

  constructor(private readonly port: SessionPort<Link>) {
    this.#states = new SessionStates((link, key) => port.drop(link, key))
  }

  /** Memory that the paused cells hold for themselves. */
  get bytes(): number {
    return this.#states.bytes
  }

  /** Cells of a session may be asked for before those before them have ended: each waits for its turn. */
  run(request: RunRequest, place: SessionPlace, signal: AbortSignal | undefined): Promise<RunResult> {
    const asking = askingOf(request, place, this.port.noSessions)
    if (typeof asking === 'string') return Promise.resolve(rejected(request.id, asking))
    const { lanes, queueLimit } = this.port
    if (this.#open >= lanes + queueLimit) return Promise.reject(queueFull(lanes, queueLimit))
    const { id } = asking
    const session = this.#touch(id)
    this.#open++
    session.open++
    const turn = session.turn
      .then(() => this.#turn(session, request.id, asking, signal))
      .finally(() => {
        this.#open--
        session.open--
        if (this.#sessions.get(id) !== session)
          this.#leaveAll(session) // it was ended meanwhile
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
    this.#leaveAll(session)
  }

  /** A zygote is gone, and every state with it. */
  lost(link: Link): void {
    this.#states.lost(link)
    for (const { cells } of this.#sessions.values()) {
      for (const cell of cells) if (cell.state?.space.link === link) cell.state = undefined
    }
  }

  #touch(id: string): Session<Link> {
    const session = this.#sessions.get(id) ?? { cells: [], turn: Promise.resolve(), open: 0 }
    this.#sessions.delete(id)
    this.#sessions.set(id, session)
    while (this.#sessions.size > SESSIONS) this.end(this.#sessions.keys().next().value as string)
    return session
  }

  async #turn({ cells }: Session<Link>, requestId: string, asking: Asking, signal?: AbortSignal): Promise<RunResult> {
    const { call, asked, id, cell, history } = asking
    for (const given of history.slice(cells.length)) cells.push(newCell(id, cells.length, given))
    if (cell > cells.length) {
      const follows = `cell ${cell} of session ${JSON.stringify(id)} follows cells that are not known here`
      const why = `${follows} (${cells.length} are); give their code in session.history`
      return rejected(requestId, `session_unknown: ${why}`)
    }
    for (const gone of cells.splice(cell)) this.#leave(gone) // asked again: what followed is void
    const next = newCell<Link>(id, cell, asked)
    const said: string[] = []
    for (let attempt = 1; ; attempt++) {
      const before = await this.#before(cells, cell, said, signal)
      const parent = 'lost' in before ? undefined : before.state
      const outcome = 'lost' in before ? undefined : await this.#run(requestId, next, call, parent, signal)
      if (!outcome || outcome.orphan) {
        if (attempt < ATTEMPTS) continue
        const why = 'lost' in before ? before.lost : 'its zygotes die'
        return rejected(requestId, `session_lost: session ${JSON.stringify(id)} could not be rebuilt: ${why}`)
      }
      this.#ended(next, outcome.result.status, parent, outcome.kept !== undefined)
      cells[cell] = next
      for (const old of cells.slice(0, -KEPT)) this.#leave(old)
      this.#evict(id)
      return said.length === 0 ? outcome.result : { ...outcome.result, reason: said.join('; ') }
    }
  }

  /** The state that cell `next` forks from, by running what is missing; none before the first. Or why it is not to be had. */
  async #before(
    cells: readonly Cell<Link>[],
    next: number,
    said: string[],
    signal: AbortSignal | undefined,
  ): Promise<{ readonly state: State<Link> | undefined } | { readonly lost: string }> {
    let first = next
    while (first > 0 && !usable(cells[first - 1]?.state)) first--
    for (let n = first; n < next; n++) {
      const cell = cells[n]!
      const parent = cells[n - 1]?.state
      this.#leave(cell)
      if (cell.void) this.#ended(cell, cell.ended, parent, false)
      else {
        const call = callOf({ id: 'rebuilt', ...cell.asked }, 0) as Call // it was checked when it was asked for
        const { result, orphan, kept } = await this.#run('rebuilt', cell, call, parent, signal)
        const { status, reason } = result
        if (orphan || reason !== undefined) return { lost: `cell ${n}: ${reason}` }
        if (cell.ended !== undefined && (cell.ended !== status || !cell.state)) {
          this.#leave(cell)
          return { lost: `cell ${n} ended with '${cell.ended}', and run again with '${status}'` }
        }
        if (kept && !cell.state) return { lost: `there was no room to keep cell ${n}` } // evicted for another session
        this.#ended(cell, status, parent, kept !== undefined)
        if (cell.void) said.push(`cell ${n} of the history ended with '${status}' and left nothing`)
      }
      const old = cells[n - KEPT]
      if (old) this.#leave(old)
    }
    return { state: cells[next - 1]?.state }
  }

  /** One that left no state stands on that of the cell before. */
  #ended(cell: Cell<Link>, status: RunStatus | undefined, parent: State<Link> | undefined, leftState: boolean): void {
    cell.ended = status
    cell.void = !leftState
    if (!cell.void || !parent) return
    cell.state = parent
    parent.users++
  }

  /** Waits for its turn in the space of the state that it forks from, where branches of a session meet. */
  async #run(id: string, cell: Cell<Link>, call: Call, parent: State<Link> | undefined, signal?: AbortSignal) {
    if (!parent) return this.#runNow(id, cell, call, parent, signal)
    parent.users++ // not to be evicted while it is forked from
    let isDue = false
    const turn = parent.space.turn.then(() => {
      if (signal?.aborted) throw aborted(signal)
      isDue = true
      return this.#runNow(id, cell, call, parent, signal)
    })
    parent.space.turn = turn.catch(() => undefined)
    let onAbort = () => {}
    const givenUp = new Promise<never>((_, reject) => {
      // One that runs is answered when it has ended.
      onAbort = () => isDue || reject(aborted(signal!))
      signal?.addEventListener('abort', onAbort, { once: true })
    })
    try {
      return await Promise.race([turn, givenUp])
    } finally {
      signal?.removeEventListener('abort', onAbort)
      this.#states.letGo(parent)
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
    if (parent && !usable(parent)) return orphan(id) // by what ran while it waited
    const key = this.#states.nextKey()
    const place = { state: key, parent: parent?.key ?? 0, seed: cell.seed, link: space?.link }
    const outcome = await this.port.submit(id, call, place, signal).catch(thrown => {
      // What it had done to files is not told.
      if (space && signal?.aborted) Object.assign(space, { files: true, tip: 0 })
      throw thrown
    })
    const { kept } = outcome
    if (outcome.orphan && parent) this.#states.lose(parent)
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

  /** Sessions that rest longest give up their states; their cells stay, to be run again. */
  #evict(busy: string): void {
    for (const [id, session] of this.#sessions) {
      if (this.#states.bytes <= this.port.memoryBytes && this.#states.size <= STATES) return
      if (id !== busy) this.#leaveAll(session)
    }
  }

  #leaveAll({ cells }: Session<Link>): void {
    for (const cell of cells) this.#leave(cell)
  }

  #leave(cell: Cell<Link>): void {
    const { state } = cell
    cell.state = undefined
    if (state) this.#states.letGo(state)
  }
}

function newCell<Link>(id: string, cell: number, asked: Asked): Cell<Link> {
  return { asked, seed: seedOf(id, cell), state: undefined, ended: undefined, void: false }
}

/** Of a cell's random numbers, so that a rebuilt cell draws what it drew. Never 0, which would ask the kernel. */
function seedOf(id: string, cell: number): bigint {
  return createHash('sha256').update(`${id}\0${cell}`).digest().readBigUInt64LE() | 1n
}
