/**
 * The zygotes of a pool (warm interpreters that fork a child for each call), by kind: kind 0 has imported the standard
 * modules, each further kind also the next group of preloads.
 *
 * in   programs to run; zygotes that begin to serve, or die
 * out  the kind that a program needs; zygotes: those of kind 0 start with the pool; of a further kind, one when
 *      `allServe` or a program needs the kind, another one when all that serve have calls
 * Invariant: the kind decides only which imports are warm, not whether a program runs. A further kind whose zygotes
 * cannot start is given up, with the reason, and its programs run in the next smaller kind that was not given up. While
 * the zygotes of kind 0 cannot start, their calls are refused.
 */
import type { Call } from '../limits'
import { neededGroups } from './imports'
import type { Job } from './job'
import type { Core, ZygoteLink } from './link'
import type { ZygoteSetup } from './worker'

type Link = ZygoteLink<Job>

/** Number of failed starts in a row, for each started zygote of a kind, after which the kind is given up. */
const STARTS = 3

interface Kind {
  readonly links: readonly Link[]
  failedStarts: number
  /** Reason for which no zygote of the kind served and the kind was given up; undefined until then. */
  fault: string | undefined
  /** Resolves when a zygote of the kind serves, or the kind was given up. */
  readonly settled: Promise<void>
  readonly settle: () => void
}

export class ZygoteKinds {
  readonly links: readonly Link[]
  readonly #kinds: readonly Kind[]
  readonly #needed: (code: Uint8Array) => number

  /**
   * Makes the kinds, and starts the zygotes of kind 0.
   * @param setups for each kind, the setup of one zygote for each core
   * @param groups for each kind from kind 1 on, the preloads that it has and the kind before it lacks
   */
  constructor(
    setups: readonly (readonly ZygoteSetup[])[],
    groups: readonly (readonly string[])[],
    link: (setup: ZygoteSetup, kind: number, core: Core) => Link,
  ) {
    const cores = setups[0]!.map((): Core => ({ calls: 0 }))
    this.#kinds = setups.map((ofKind, kind) => {
      const links = ofKind.map((setup, n) => link(setup, kind, cores[n]!))
      let settle = () => {}
      const settled = new Promise<void>(resolve => {
        settle = resolve
      })
      // Each kind starts on another core first, so that few zygotes in use do not share the first core.
      return { links: rotated(links, kind), failedStarts: 0, fault: undefined, settled, settle }
    })
    this.links = this.#kinds.flatMap(({ links }) => links)
    this.#needed = neededGroups(groups)
    for (const first of this.#kinds[0]!.links) first.start()
  }

  /**
   * Returns the kind for a call; for a session the largest kind, since nobody knows which modules later cells import.
   */
  kindOf(call: Call, isSession: boolean): number {
    return this.#usable(isSession ? this.#kinds.length - 1 : this.#needed(call.code))
  }

  /** Starts one more zygote of the kind, unless one is starting or all are started. */
  readonly grow = (kind: number): void => {
    const { links } = this.#kinds[kind]!
    if (!links.some(link => link.started && !link.ready)) links.find(link => !link.started)?.start()
  }

  serves({ kind }: Link): void {
    this.#kinds[kind]!.failedStarts = 0
    this.#kinds[kind]!.settle()
  }

  /**
   * Records that a zygote died. Returns true if its kind is given up, because none of its zygotes serves, and starts
   * have failed too often or a package could not be preloaded. Then `kindOf` returns a smaller kind for the calls; kind
   * 0 has none below it.
   */
  died({ kind, pid }: Link, reason: string): boolean {
    const one = this.#kinds[kind]!
    if (pid === 0) one.failedStarts++
    const started = one.links.filter(link => link.started)
    const isFinal = reason.includes(PRELOAD_FAILED)
    if (started.some(link => link.ready) || (one.failedStarts < STARTS * started.length && !isFinal)) return false
    one.fault ??= reason
    one.settle()
    // The zygotes of kind 0 keep restarting, since a machine that was short of memory may recover; until one serves,
    // calls are refused.
    if (kind > 0) for (const link of one.links) void link.close()
    return true
  }

  /** Returns the kind in which the calls of a kind that was given up run instead; undefined for kind 0. */
  instead(kind: number): number | undefined {
    return kind === 0 ? undefined : this.#usable(kind)
  }

  /**
   * Starts a zygote of every kind and waits for them. Returns the reason for which one cannot start; undefined if all
   * serve.
   */
  async allServe(): Promise<string | undefined> {
    for (const { links } of this.#kinds) links[0]!.start()
    await Promise.all(this.#kinds.map(({ settled }) => settled))
    return this.#kinds.find(({ fault }) => fault !== undefined)?.fault
  }

  #usable(kind: number): number {
    let usable = kind
    while (usable > 0 && this.#kinds[usable]!.fault !== undefined) usable--
    return usable
  }
}

/** Beginning of warming.py's report that a preload cannot be imported; starting the zygote again would not help. */
const PRELOAD_FAILED = 'preload of '

const rotated = <T>(items: readonly T[], by: number): readonly T[] => {
  const at = by % items.length
  return [...items.slice(at), ...items.slice(0, at)]
}
