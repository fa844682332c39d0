/**
 * The lmdb bus against lmdb itself: durable appends and replay of 1 KiB records, both arms in one run.
 *
 * Both arms have as many producers, each of which waits for its record to be on disk before it sends the next, and the
 * same durability (`overlappingSync: false`). The raw arm puts bare values under 10-byte keys; the bus adds partitions,
 * offsets, timestamps, headers and checksums. Rounds alternate; the median of the rounds' ratios is held to the budget.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open } from 'lmdb'
import { type Bus, openLmdbBus } from '../runtime/bus'
import { atLeast, type BenchReport, describeMachine, median, printReport } from './report'

const partitions = 8
const producers = 256
const recordsEach = 40
const replayTimes = 4
const rounds = 7

const value = Buffer.alloc(1024, 'abcdefg')
/** As the codec writes them: some the same for all, some a group's, some a record's. */
const headersOf = (producer: number, index: number): Record<string, string> => ({
  type: 'turn.completed',
  version: '1',
  run: 'bench-run',
  trajectory: `group-${producer}/${index % 16}`,
  group: `group-${producer}`,
  turn: String(index),
  attempt: '0',
  policyVersion: '12',
})

interface Arm {
  append(producer: number, index: number): Promise<unknown>
  /** Touches every value; returns their bytes. */
  replay(): Promise<number>
  close(): Promise<void>
}

async function busArm(directory: string): Promise<Arm> {
  const bus: Bus = await openLmdbBus({ directory, mode: 'write' })
  await bus.createTopics([{ topic: 'trajectories', partitions, retentionMs: null }])
  return {
    append: (producer, index) =>
      bus.append([{ topic: 'trajectories', key: `group-${producer}`, headers: headersOf(producer, index), value }]),
    async replay() {
      let bytes = 0
      for (let partition = 0; partition < partitions; partition++) {
        for (let offset = 0; ; ) {
          const records = await bus.read('trajectories', partition, offset)
          const last = records[records.length - 1]
          if (!last) break
          for (const record of records) {
            if (record.headers.type !== 'turn.completed') throw new Error('a header changed')
            bytes += record.value.length
          }
          offset = last.offset + 1
        }
      }
      return bytes
    },
    close: () => bus.close(),
  }
}

async function rawArm(directory: string): Promise<Arm> {
  const root = open({ path: directory, noSubdir: false, overlappingSync: false })
  const records = root.openDB<Buffer, Buffer>({ name: 'records', encoding: 'binary', keyEncoding: 'binary' })
  const next = new Array<number>(partitions).fill(0)
  return {
    append(producer) {
      const partition = producer % partitions
      const key = Buffer.allocUnsafe(10)
      key.writeUInt32BE(partition, 0)
      key.writeUIntBE(next[partition]!++, 4, 6)
      return records.put(key, value)
    },
    async replay() {
      let bytes = 0
      for (const { value } of records.getRange()) bytes += value.length
      return bytes
    },
    close: () => root.close(),
  }
}

interface Round {
  readonly appendsPerSecond: number
  readonly appendCpuUs: number
  readonly replaysPerSecond: number
  readonly oneByOneMs: number
}

async function round(openArm: (directory: string) => Promise<Arm>): Promise<Round> {
  const directory = mkdtempSync(join(process.env.TROUPE_BENCH_DIR ?? tmpdir(), 'troupe-bench-bus-'))
  const arm = await openArm(directory)
  const count = producers * recordsEach
  try {
    const cpuBefore = process.cpuUsage()
    const appending = await timed(() =>
      Promise.all(
        Array.from({ length: producers }, async (_, producer) => {
          for (let index = 0; index < recordsEach; index++) await arm.append(producer, index)
        }),
      ),
    )
    const cpu = process.cpuUsage(cpuBefore)
    const replaying = await timed(async () => {
      for (let time = 0; time < replayTimes; time++) {
        const bytes = await arm.replay()
        if (bytes !== count * value.length) throw new Error(`replay gave ${bytes} bytes of ${count * value.length}`)
      }
    })
    const latencies: number[] = []
    for (let index = 0; index < 20; index++) latencies.push(await timed(() => arm.append(0, index)))
    return {
      appendsPerSecond: (count / appending) * 1000,
      appendCpuUs: (cpu.user + cpu.system) / count,
      replaysPerSecond: ((count * replayTimes) / replaying) * 1000,
      oneByOneMs: median(latencies),
    }
  } finally {
    await arm.close()
    rmSync(directory, { recursive: true })
  }
}

async function timed(act: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await act()
  return performance.now() - start
}

export async function bench(): Promise<BenchReport> {
  const pairs: { readonly bus: Round; readonly raw: Round }[] = []
  // Uncounted: the first round of an arm measures the compiler.
  await round(busArm)
  await round(rawArm)
  for (let i = 0; i < rounds; i++) {
    // Whoever is second finds a disk and a heap that the first has used: take turns.
    const busFirst = i % 2 === 0 ? await round(busArm) : undefined
    const raw = await round(rawArm)
    pairs.push({ bus: busFirst ?? (await round(busArm)), raw })
  }
  const middle = (of: (pair: (typeof pairs)[number]) => number): number => median(pairs.map(of))
  return {
    bench: 'bus',
    machine: describeMachine(),
    metrics: {
      busAppendsPerSecond: middle(({ bus }) => bus.appendsPerSecond),
      rawAppendsPerSecond: middle(({ raw }) => raw.appendsPerSecond),
      busAppendCpuUs: middle(({ bus }) => bus.appendCpuUs),
      rawAppendCpuUs: middle(({ raw }) => raw.appendCpuUs),
      busReplaysPerSecond: middle(({ bus }) => bus.replaysPerSecond),
      rawReplaysPerSecond: middle(({ raw }) => raw.replaysPerSecond),
      busOneByOneMs: middle(({ bus }) => bus.oneByOneMs),
      rawOneByOneMs: middle(({ raw }) => raw.oneByOneMs),
      producers,
      recordBytes: value.length,
    },
    budgets: [
      atLeast(
        'durable appends, share of raw lmdb',
        middle(({ bus, raw }) => bus.appendsPerSecond / raw.appendsPerSecond),
        0.5,
      ),
      atLeast(
        'replay, share of raw lmdb',
        middle(({ bus, raw }) => bus.replaysPerSecond / raw.replaysPerSecond),
        0.5,
      ),
    ],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
