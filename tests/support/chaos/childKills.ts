/**
 * Kills every kind of child of a run by SIGKILL, so many times each, at moments that follow from a seed: as it starts, or
 * later.
 *
 * in   the run's process, kinds, how often        out  how often each was killed, and how often as it started
 * Invariant: the kinds are killed independently of one another, each as often as its supervisor allows: no child is killed
 * at two starts in a row (one that seems to serve may still be starting, and the third failed start is the last), nor more than five times within a minute, and no trainer in three calls in a row
 * (docs/architecture.md).
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
  /** Number of results that trainers have had so far: steps, checkpoints, versions of weights. */
  readonly trained: () => Promise<number>
  readonly onKill?: (kind: ChildKind, how: string) => void
}

export interface KillCount {
  readonly kind: ChildKind
  kills: number
  atStart: number
}

const mostInAMinute = 4
/** Longest time from a process's appearance to its kill at the start, in milliseconds. */
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
  /** Milliseconds until one more kill is within `mostInAMinute`. */
  const waitsMs = () => (latest.length < mostInAMinute ? 0 : latest.at(-mostInAMinute)! + 60_000 - performance.now())
  const latest: number[] = []
  let before = new Set<number>()
  /** Kills at a start in a row. */
  let starts = 0
  /** `trained` at the latest kill of a trainer that served, which may have cost it a call. */
  let results = -1
  while (count.kills < times) {
    // Each kill is followed by a start, so that there always is one to wait for.
    const isAtStart = starts < 1 && waitsMs() <= 0 && random.below(2) === 0
    const child = await found(({ serves, pid }) => (isAtStart ? !before.has(pid) : serves))
    if (kind === 'trainer' && !isAtStart) {
      await until(async () => (await trained()) !== results, appearsWithinMs, 500)
      results = await trained()
    }
    const afterMs = random.below(isAtStart ? latestAtStartMs : latestMs)
    await sleep(Math.max(afterMs, isAtStart ? 0 : waitsMs()))
    const alive = new Set(all().map(({ pid }) => pid))
    // It ended by itself, or another fault was faster. What took its place has not been waited for: `before` stays.
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
