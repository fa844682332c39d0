/**
 * Runs an open load: calls begin at their scheduled times, whether or not earlier calls are answered, as independent
 * users call.
 *
 * in   a rate and a duration      out  each call's latency, from its scheduled start
 */
export interface OpenLoad {
  readonly perSecond: number
  readonly seconds: number
  readonly seed: number
}

/**
 * Runs the load and returns latencies in ms, in the order of the calls. Gaps between calls are exponential (Poisson
 * arrivals) and follow from the seed.
 */
export async function openLoad(
  { perSecond, seconds, seed }: OpenLoad,
  call: (index: number) => Promise<void>,
): Promise<readonly number[]> {
  const random = mulberry32(seed)
  const times: number[] = []
  for (let at = 0; at < seconds * 1000; at += (-Math.log(1 - random()) * 1000) / perSecond) times.push(at)
  const start = performance.now()
  const latencies = times.map(async (at, index) => {
    await delay(start + at - performance.now())
    await call(index)
    return performance.now() - start - at
  })
  return Promise.all(latencies)
}

const delay = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, Math.max(0, ms)))

/** Generator of random numbers in [0, 1) from 32 bits of state. Source: T. Ettinger's mulberry32, public domain. */
function mulberry32(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}
