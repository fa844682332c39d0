/**
 * Kills (SIGKILL) the children of a run a given number of times per kind, at moments that follow from a seed: while a
 * child starts, or later.
 *
 * in   the run's process, kinds of children, the number of kills
 * out  for each kind the number of kills, and how many of them hit a child that was starting
 * Invariant: each kind is killed independently of the others, and never more often than its supervisor allows
 * (docs/architecture.md): not at two starts in a row (a child that seems to serve may still be starting, and a
 * supervisor gives up after three failed starts in a row), at most four times within a minute, and a trainer that
 * serves only after a new result of a trainer.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { pcg32, type Random } from '../../../kernels/random'
import { until } from '../until'
import { type Child, type ChildKind, childrenOf } from './children'

export interface ChildKillsOptions {
  /** Pid of the run's process; it may be another one after a resume. */
  readonly pid: () => number
  readonly kinds: readonly ChildKind[]
  readonly times: number
  readonly seed: number
  /** Resolves with the number of results that trainers have given so far: steps, checkpoints, versions of weights. */
  readonly trained: () => Promise<number>
  readonly onKill?: (kind: ChildKind, how: string) => void
}

export interface KillCount {
  readonly kind: ChildKind
  kills: number
  atStart: number
}

const mostInAMinute = 4
/** Upper bound on the time from the appearance of a child to its kill while it starts, in milliseconds. */
const latestAtStartMs = 300
const latestMs = 4000
const appearsWithinMs = 400_000

export async function killChildren(options: ChildKillsOptions): Promise<readonly KillCount[]> {
  return Promise.all(options.kinds.map((kind, n) => killKind(options, kind, pcg32(options.seed * 1000 + n))))
}

async function killKind(
  { pid, times, trained, onKill = () => {} }: ChildKillsOptions,
  kind: ChildKind,
  random: Random,
): Promise<KillCount> {
  const count: KillCount = { kind, kills: 0, atStart: 0 }
  const all = () => childrenOf(pid()).filter(child => child.kind === kind)
  const found = async (isWanted: (child: Child) => boolean): Promise<Child> => {
    let child: Child | undefined
    await until(
      () => {
        child = all().find(isWanted)
        return child !== undefined
      },
      appearsWithinMs,
      5,
    ).catch(() => {
      throw new Error(`no ${kind} appeared within ${appearsWithinMs} ms after ${count.kills} kills`)
    })
    return child!
  }
  /** Returns the milliseconds until one more kill would not exceed `mostInAMinute`. */
  const waitsMs = () => (latest.length < mostInAMinute ? 0 : latest.at(-mostInAMinute)! + 60_000 - performance.now())
  const latest: number[] = []
  let before = new Set<number>()
  /** Number of latest kills in a row that hit a child while it started. */
  let starts = 0
  /** Result of `trained` before the latest kill of a trainer that served; the kill may have failed one call. */
  let results = -1
  while (count.kills < times) {
    // The run restarts the child after each kill, so a start to wait for always comes.
    const isAtStart = starts < 1 && waitsMs() <= 0 && random.below(2) === 0
    const child = await found(({ serves, pid }) => (isAtStart ? !before.has(pid) : serves))
    if (kind === 'trainer' && !isAtStart) {
      await until(async () => (await trained()) !== results, appearsWithinMs, 500)
      results = await trained()
    }
    const afterMs = random.below(isAtStart ? latestAtStartMs : latestMs)
    await sleep(Math.max(afterMs, isAtStart ? 0 : waitsMs()))
    const alive = new Set(all().map(({ pid }) => pid))
    // The child has ended by itself or by another fault. Its successor has not been waited for, so `before` stays.
    if (!alive.has(child.pid)) continue
    before = alive
    process.kill(child.pid, 'SIGKILL')
    latest.push(performance.now())
    count.kills++
    if (isAtStart) count.atStart++
    starts = isAtStart ? starts + 1 : 0
    onKill(kind, isAtStart ? `${afterMs} ms after it appeared` : 'while it served')
  }
  return count
}
