/**
 * Sessions: notebooks whose cells are kept. A cell forks from what the cell before left behind, so a turn costs the same
 * however many came before it.
 *
 * in   cell k of a session, its history where this sandbox may not know it      out  the cell's result
 * Invariant: cell k sees what cells 0 to k-1 made and nothing else, whatever was evicted, lost or asked twice meanwhile.
 * A state is forked from again only if that is what it still is: where a cell has left files, which its namespace's
 * later cells share, the session is rebuilt by running its cells. A cell that was killed leaves nothing: the next one
 * forks from the state before it.
 */
import { createHash } from 'node:crypto'
import { rejected } from './answers'
import { type Call, callOf } from './limits'
import type { RunRequest, RunResult, SandboxLevel, SessionCell, SessionPlace } from './sandbox'

/** What this needs of the pool; `Link` is a zygote. */
export interface SessionPort<Link> {
  readonly memoryBytes: number
  readonly level: SandboxLevel
  submit(
    id: string,
    call: Call,
    place: { state: number; parent: number; seed: bigint; link: Link | undefined },
    signal: AbortSignal | undefined,
  ): Promise<{
    readonly result: RunResult
    readonly files: boolean
    readonly kept: { readonly link: Link; readonly bytes: number } | undefined
    readonly orphan?: true
  }>
  drop(link: Link, state: number): void
}

/** A namespace of a zygote; its cells share one directory. */
interface Space<Link> {
  readonly link: Link
  files: boolean
  /** The state that ran last in it. */
  tip: number
}

interface State<Link> {
  readonly key: number
  readonly space: Space<Link>
  readonly bytes: number
  /** Cells that stand on it, over all sessions. */
  users: number
  gone: boolean
}

interface Cell<Link> {
  readonly asked: Pick<RunRequest, 'code' | 'stdin' | 'mode' | 'timeoutMs' | 'memoryMb'>
  readonly seed: bigint
  state: State<Link> | undefined
  /** It was killed: the state is that of the cell before. */
  readonly void: boolean
}

interface Session<Link> {
  readonly cells: Cell<Link>[]
  /** One cell of a session runs at a time. */
  turn: Promise<unknown>
}

/** States that a session keeps: its last, and the one before it for a cell that is asked again. */
const KEPT = 2
const STATES = 400
const SESSIONS = 20_000
const ATTEMPTS = 3

export class Sessions<Link> {
  /** The longest unused first. */
  readonly #sessions = new Map<string, Session<Link>>()
  readonly #states = new Set<State<Link>>()
  #keys = 0
  #bytes = 0

  constructor(private readonly port: SessionPort<Link>) {}

  /** Memory that the paused cells hold for themselves. */
  get bytes(): number {
    return this.#bytes
  }

  run(request: RunRequest, place: SessionPlace, signal: AbortSignal | undefined): Promise<RunResult> {
    const call = callOf({ ...request, mode: request.mode ?? 'cell' }, 0)
    if (typeof call === 'string') return Promise.resolve(rejected(request.id, call))
    const fault = this.#fault(call, place)
    if (fault) return Promise.resolve(rejected(request.id, fault))
    const session = this.#touch(place)
    const turn = session.turn.then(() => this.#turn(session, request, call, place, signal))
    session.turn = turn.catch(() => undefined)
    return turn
  }

  fork(from: string, cell: number, to: string): boolean {
    const source = this.#sessions.get(from)
    if (!source || !Number.isInteger(cell) || cell < 0 || cell >= source.cells.length) return false
    this.end(to)
    const cells = source.cells.slice(0, cell + 1).map(one => ({ ...one }))
    for (const { state } of cells) if (state) state.users++
    this.#sessions.set(to, { cells, turn: Promise.resolve() })
    this.#evict(to)
    return true
  }

  end(id: string): void {
    const session = this.#sessions.get(id)
    if (!session) return
    this.#sessions.delete(id)
    for (const cell of session.cells) this.#leave(cell)
  }

  /** A zygote is gone, and every state with it. */
  lost(link: Link): void {
    for (const state of this.#states) if (state.space.link === link) this.#forget(state)
    for (const { cells } of this.#sessions.values()) {
      for (const cell of cells) if (cell.state?.space.link === link) cell.state = undefined
    }
  }

  #fault(call: Call, { id, cell, history }: SessionPlace): string | undefined {
    if (this.port.level !== 'full') return `sessions need level 'full', this sandbox is at '${this.port.level}'`
    if (call.maxProcesses > 0) return 'the cells of a session may start no processes: leave maxProcesses out'
    if (typeof id !== 'string' || !Number.isInteger(cell) || cell < 0)
      return 'session must be {id, cell}, cells count from 0'
    const known = Math.max(this.#sessions.get(id)?.cells.length ?? 0, history?.length ?? 0)
    if (cell <= known) return undefined
    return `session_unknown: cell ${cell} of session ${JSON.stringify(id)} follows cells that are not known here (${known} are); give their code in session.history`
  }

  #touch({ id, history }: SessionPlace): Session<Link> {
    const session = this.#sessions.get(id) ?? { cells: [], turn: Promise.resolve() }
    this.#sessions.delete(id)
    this.#sessions.set(id, session)
    for (const [n, cell] of (history ?? []).entries())
      if (n >= session.cells.length) session.cells.push(recorded(id, n, cell))
    while (this.#sessions.size > SESSIONS) this.end(this.#sessions.keys().next().value as string)
    return session
  }

  async #turn(
    session: Session<Link>,
    request: RunRequest,
    call: Call,
    { id, cell }: SessionPlace,
    signal: AbortSignal | undefined,
  ): Promise<RunResult> {
    for (const gone of session.cells.splice(cell)) this.#leave(gone) // asked again: what followed is void
    const asked = { ...request, mode: call.mode }
    const next: Cell<Link> = { asked, seed: seedOf(id, cell), state: undefined, void: false }
    for (let attempt = 1; ; attempt++) {
      const parent = await this.#state(session, cell - 1, signal)
      const outcome = parent === 'lost' ? undefined : await this.#cell(request.id, next, call, parent, signal)
      if (!outcome || outcome.orphan) {
        if (attempt < ATTEMPTS) continue
        return rejected(request.id, `session_lost: the state of session ${JSON.stringify(id)} could not be rebuilt`)
      }
      const inherited = session.cells[cell - 1]?.state
      if (!next.state && inherited) inherited.users++
      session.cells[cell] = next.state ? next : { ...next, state: inherited, void: true }
      for (const old of session.cells.slice(0, -KEPT)) this.#leave(old)
      this.#evict(id)
      return outcome.result
    }
  }

  /** The state after a cell, by running what is missing; undefined before the first. */
  async #state(session: Session<Link>, last: number, signal?: AbortSignal): Promise<State<Link> | undefined | 'lost'> {
    let from = last
    while (from >= 0 && !usable(session.cells[from]?.state)) from--
    let state = from >= 0 ? session.cells[from]?.state : undefined
    for (let n = from + 1; n <= last; n++) {
      const cell = session.cells[n] as Cell<Link>
      this.#leave(cell)
      if (!cell.void) {
        const call = callOf({ id: 'rebuilt', ...cell.asked }, 0) as Call // it was checked when it was asked for
        const { orphan } = await this.#cell('rebuilt', cell, call, state, signal)
        if (orphan) return 'lost'
      }
      if (!cell.state && state) {
        cell.state = state
        state.users++
      }
      state = cell.state
      const before = session.cells[n - KEPT]
      if (before) this.#leave(before)
    }
    return state
  }

  async #cell(id: string, cell: Cell<Link>, call: Call, parent: State<Link> | undefined, signal?: AbortSignal) {
    this.#keys = (this.#keys % 0xffffffff) + 1
    const key = this.#keys
    const space = parent?.space
    if (parent) parent.users++ // not to be evicted while it is forked from
    try {
      const place = { state: key, parent: parent?.key ?? 0, seed: cell.seed, link: space?.link }
      const outcome = await this.port.submit(id, call, place, signal)
      const { kept } = outcome
      if (outcome.orphan && parent) this.#forget(parent)
      if (kept) {
        const own = space ?? { link: kept.link, files: false, tip: 0 }
        own.files ||= outcome.files
        own.tip = key
        cell.state = { key, space: own, bytes: kept.bytes, users: 1, gone: false }
        this.#states.add(cell.state)
        this.#bytes += kept.bytes
      } else if (space && outcome.files) {
        space.files = true
        space.tip = 0
      }
      return outcome
    } finally {
      if (parent) this.#unuse(parent)
    }
  }

  /** Sessions that rest longest give up their states; their cells stay, to be run again. */
  #evict(busy: string): void {
    for (const [id, { cells }] of this.#sessions) {
      if (this.#bytes <= this.port.memoryBytes && this.#states.size <= STATES) return
      if (id !== busy) for (const cell of cells) this.#leave(cell)
    }
  }

  #leave(cell: Cell<Link>): void {
    const { state } = cell
    cell.state = undefined
    if (state) this.#unuse(state)
  }

  #unuse(state: State<Link>): void {
    state.users--
    if (state.users > 0 || !this.#states.has(state)) return
    this.port.drop(state.space.link, state.key)
    this.#forget(state)
  }

  #forget(state: State<Link>): void {
    if (this.#states.delete(state)) this.#bytes -= state.bytes
    state.gone = true
  }
}

/** Whether forking from it gives what the cell left: files of a namespace are those of the cell that ran last in it. */
function usable<Link>(state: State<Link> | undefined): boolean {
  return state !== undefined && !state.gone && (!state.space.files || state.space.tip === state.key)
}

function recorded<Link>(id: string, n: number, cell: SessionCell): Cell<Link> {
  const asked = { code: cell.code, mode: 'cell', ...(cell.stdin === undefined ? {} : { stdin: cell.stdin }) } as const
  return { asked, seed: seedOf(id, n), state: undefined, void: false }
}

/** Of a cell's random numbers, so that a rebuilt cell draws what it drew. Never 0, which would ask the kernel. */
function seedOf(id: string, cell: number): bigint {
  return createHash('sha256').update(`${id}\0${cell}`).digest().readBigUInt64LE() | 1n
}
