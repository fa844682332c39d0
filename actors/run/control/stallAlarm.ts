/**
 * Raises the alarm `stalled` when no process of the run has written a fact for `minutes` minutes.
 *
 * in   the end offsets of the run's fact topics, read every 10 s        out  alarm.raised, once until another fact
 * Invariant: a pause of the run (a person's order, a full disk) does not count as time; a time in which this process
 * was suspended counts as 20 s at most. Only offsets are read, so the cost does not depend on how much the run writes.
 */
import { stalled } from '../../../config'
import { ActiveClock } from '../../../runtime/activeClock'
import type { Effects } from '../../../runtime/effects'
import type { Journal } from '../../../runtime/journal/journal'
import type { Log } from '../../../runtime/log'

const lookEveryMs = 10_000
const topics = ['runs', 'trajectories', 'learner'] as const

export interface StallAlarmOptions {
  readonly journal: Journal
  readonly fx: Effects
  readonly log: Log
  readonly minutes: number
  readonly mayAct: () => Promise<boolean>
}

/** Makes the watch: `look` checks once and raises the alarm if it is due; `start` calls it every 10 s. */
export function stallAlarm({ journal, fx, log, minutes, mayAct }: StallAlarmOptions) {
  const clock = new ActiveClock(2 * lookEveryMs)
  let [end, since, raised] = [-1, 0, false]

  async function endNow(): Promise<number> {
    let sum = 0
    for (const topic of topics) {
      for (let p = 0; p < (await journal.partitionsOf(topic)); p++) sum += (await journal.offsets(topic, p)).next
    }
    return sum
  }

  async function look(): Promise<void> {
    const now = await endNow()
    clock.tick(fx)
    if (now !== end) {
      end = now
      since = clock.now
      raised = false
      return
    }
    if (raised || clock.now - since < minutes * 60_000 || !(await mayAct())) return
    raised = true
    end++ // the alarm's own record does not count as progress
    const message = `no fact for ${minutes} minutes: ${stalled.hint}: npx troupe why ${journal.run}`
    await journal.append([{ type: 'alarm.raised', at: fx.now(), alarm: stalled.name, message }])
  }

  return {
    look,
    /** Calls `look` every 10 s until the returned function is called. An error of `look` is logged. */
    start(): () => Promise<void> {
      let looking: Promise<void> | undefined
      const timer = setInterval(() => {
        looking ??= look()
          .catch(err => log.debug({ err }, 'the ends of the topics could not be read'))
          .finally(() => {
            looking = undefined
          })
      }, lookEveryMs).unref()
      return async () => {
        clearInterval(timer)
        await looking
      }
    },
  }
}
