/** The soak's verdict: what grows is found with its figures, and what only goes up and down is not accused. */
import { pcg32 } from '../../kernels/random'
import type { Sample } from './sample'
import { judge, type TimedSample } from './verdict'

const mib = 1024 * 1024
const minutes = 110
const warmUpHours = 0.25
const retentionMs = 300_000
const judged = (samples: readonly TimedSample[]) => judge(samples, warmUpHours, retentionMs)

const calls = (minute: number) => Math.max(0, 800 * minute + 800 * Math.max(0, minute - minutes / 2))

/** A run that is steady: memory that a collector takes back, a step a minute, a log that grows by what is kept. */
function soak(
  seed: number,
  change: (sample: Record<string, number>, minute: number) => void = () => {},
): TimedSample[] {
  const random = pcg32(seed)
  const noise = (size: number) => size * (random.below(2001) / 1000 - 1)
  return Array.from({ length: minutes }, (_, minute) => {
    // Caches fill in the first minutes, then the heap is a sawtooth.
    const warm = Math.min(1, minute / 12)
    const sample: Record<string, number> = {
      'memoryBytes:train': (150 + 60 * warm + 25 * (random.below(1001) / 1000)) * mib,
      'memoryBytes:engine': (400 + 30 * warm) * mib + noise(2 * mib),
      'descriptors:train': 49 + random.below(3),
      'threads:engine': 12,
      'files:temporary': 9 + random.below(6),
      'directories:checkpoints': 4 + random.below(2),
      // Kept for 5 to 7 minutes, at a rate that doubles half way.
      'appended:tool-calls': calls(minute),
      'kept:tool-calls': calls(minute) - calls(minute - 5 - random.below(2)),
      'kept:dead-letters': 0,
      'appended:trajectories': minute * 1000,
      'appended:telemetry': minute * 180,
      'kept:trajectories': minute * 1000,
      'kept:telemetry': minute * 180,
      'lagSeconds:mean': 0.012 + Math.abs(noise(0.004)),
      decisions: minute * 900,
      decisionSeconds: minute * 900 * 0.0001,
      steps: minute,
    }
    const records = minute * 1180 + sample['kept:tool-calls']!
    sample['bytes:log'] = records * 700 + mib
    sample['bytes:run'] = sample['bytes:log'] + 80 * mib + noise(mib / 4)
    change(sample, minute)
    return { hours: minute / 60, sample: sample as Sample }
  })
}

test('a steady run is not accused, whatever its noise', () => {
  for (let seed = 1; seed <= 40; seed++) expect(judged(soak(seed)).faults).toEqual([])
})

const plus = (name: string, perMinute: number) => (sample: Record<string, number>, minute: number) => {
  sample[name] = (sample[name] ?? 0) + minute * perMinute
}

test.each([
  ['memory, 20 MiB an hour below a sawtooth of 25 MiB', 'memoryBytes:train', mib / 3],
  ['memory of a child, 6 MiB an hour', 'memoryBytes:engine', mib / 10],
  ['a descriptor every 20 minutes', 'descriptors:train', 1 / 20],
  ['a temporary file every 10 minutes', 'files:temporary', 1 / 10],
  ['checkpoints that nobody removes', 'directories:checkpoints', 1 / 10],
  ['the event loop falls behind', 'lagSeconds:mean', 0.0002],
] as const)('%s: named', (_, series, perMinute) => {
  const { faults } = judged(soak(3, plus(series, perMinute)))
  expect(faults).toEqual([expect.stringMatching(`^${series} grows by [0-9.e+-]+$`)])
})

test('commands that are not dropped after their retention are named, and so are ones that are dropped late', () => {
  const { faults } = judged(soak(3, plus('kept:tool-calls', 60)))
  expect(faults).toEqual([
    expect.stringMatching(/^overdue:tool-calls grows by \d/),
    expect.stringMatching(/^overdue:tool-calls: \d+ commands are older than their retention$/),
  ])
})

test('what the first process caches of the log is no growth, once the caches are full', () => {
  const filling = (until: number) => (sample: Record<string, number>, minute: number) => {
    const records = Math.min(4096, minute * 80)
    sample['appended:learner'] = minute * 80
    sample['memoryBytes:train'] = (250 + (20 * Math.min(until, records)) / 4096) * mib
  }
  expect(judged(soak(3, filling(4096))).faults).toEqual([])
  // The same growth, without caches that would explain it.
  const { faults } = judged(
    soak(3, (sample, minute) => {
      sample['memoryBytes:train'] = (250 + (20 * Math.min(50, minute)) / 50 + minute / 10) * mib
    }),
  )
  expect(faults).toEqual([expect.stringMatching(/^memoryBytes:train grows/)])
})

test('a log that grows by more for each record is named, and so are decisions that take longer', () => {
  const steeper = soak(5, (sample, minute) => {
    sample['bytes:log']! += 3 * minute ** 2 * 700
    sample.decisionSeconds! += 900 * 1e-6 * minute ** 2
  })
  const { faults } = judged(steeper)
  expect(faults.map(fault => fault.split(' grows')[0]).sort()).toEqual(['decision', 'log bytes a record'])
})

test('a process that lives in a few samples only is no series; a soak that is too short says so', () => {
  const helped = soak(3, (sample, minute) => {
    if (minute > 100 && minute < 104) sample['memoryBytes:other'] = mib * minute
  })
  expect(judged(helped).faults).toEqual([])
  expect(judged(soak(3).slice(0, 20)).faults).toContainEqual(
    expect.stringMatching(/^memoryBytes:train cannot be judged: fewer than 8 samples/),
  )
})

test('a dead letter, or a run that makes no steps, is a fault', () => {
  const dead = soak(7, sample => {
    sample['kept:dead-letters'] = 2
  })
  expect(judged(dead).faults).toEqual(['2 dead letters'])
  const still = soak(7, sample => {
    sample.steps = 5
  })
  expect(judged(still).faults).toContain('no step was made after the warm-up')
})
