/** The rehearsal's clock: timers on simulated time, a speed that falls while the plane is behind. */
import { rehearsalClock } from '../../../cli/rehearse/clock'

function driven(waitMs: () => number, speed = 20) {
  let real = 0
  let run = () => {}
  const clock = rehearsalClock({
    ...{ speed, waitMs, elapsed: () => real },
    pulse(given) {
      run = given
      return () => {}
    },
  })
  /** Lets `ms` of real time pass, in pulses of `everyMs`. */
  const pass = (ms: number, everyMs = 5) => {
    for (let at = 0; at < ms; at += everyMs) {
      real += everyMs
      run()
    }
  }
  return { clock, pass }
}

test('a plane that keeps up sees the clock rise to the highest speed', () => {
  const { clock, pass } = driven(() => 0)
  pass(10_000)
  const before = clock.elapsed()
  pass(1000)
  expect(clock.elapsed() - before).toBeCloseTo(20_000, 0)
})

test('a plane that is behind slows the clock down, so that deadlines wait for it', () => {
  let waitMs = 0
  const { clock, pass } = driven(() => waitMs)
  pass(5000)
  waitMs = 2000
  pass(5000)
  const before = clock.elapsed()
  pass(1000)
  // Messages that wait for 2 s of real time may wait for about 1 s of simulated time.
  expect(clock.elapsed() - before).toBeGreaterThan(200)
  expect(clock.elapsed() - before).toBeLessThan(600)
  expect(clock.figures().heldShare).toBeGreaterThan(0.5)
})

test('a blocked event loop does not make time jump', () => {
  const { clock, pass } = driven(() => 0)
  pass(10_000)
  const before = clock.elapsed()
  pass(60_000, 60_000)
  expect(clock.elapsed() - before).toBeLessThanOrEqual(20 * 100)
  expect(clock.figures().longestBlockMs).toBe(60_000 - 5)
})

test('timers fire in the order of their simulated times, once, and not after they were cancelled', () => {
  const { clock, pass } = driven(() => 0, 1)
  const fired: string[] = []
  clock.after(300, () => fired.push('late'))
  clock.after(100, () => fired.push('early'))
  clock.after(200, () => fired.push('cancelled'))()
  pass(50)
  expect(fired).toEqual([])
  pass(1000)
  expect(fired).toEqual(['early', 'late'])
})

test('ticks keep their simulated period while that lies above the least real time, and that time at high speeds', () => {
  const slow = driven(() => 0, 1)
  let ticks = 0
  const stop = slow.clock.every(1000, () => ticks++)
  slow.pass(10_000)
  expect(ticks).toBeGreaterThanOrEqual(9)
  expect(ticks).toBeLessThanOrEqual(10)
  stop()
  slow.pass(5000)
  expect(ticks).toBeLessThanOrEqual(10)
  const fast = driven(() => 0, 20)
  let quick = 0
  fast.clock.every(250, () => quick++)
  fast.pass(10_000)
  expect(quick).toBeLessThanOrEqual(40)
  expect(quick).toBeGreaterThanOrEqual(30)
})
