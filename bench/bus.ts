/**
 * Compares the lmdb bus with lmdb itself: durable appends and replay of 1 KiB records, both arms in one run.
 *
 * Both arms have the same number of producers, each of which waits until its record is on disk before it sends the
 * next, and the same durability (`overlappingSync: false`). The raw arm stores bare values under 10-byte keys; the bus
 * adds partitions, offsets, timestamps, headers and checksums. The arms alternate block by block, because a shared
 * disk is at times ten times slower than at others; the ratio of the medians is held to the budget.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open } from 'lmdb'
import { type Bus, openLmdbBus } from '../runtime/bus'
import { atLeast, type BenchReport, describeMachine, median, printReport } from './report'
import { headersOf } from './support/turnHeaders'

const partitions = 8
const producers = 256
/** Number of records that each producer sends in a block. */
const recordsEach = 4
const appendBlocks = 60
const replayBlocks = 11
const oneByOneBlocks = 40
/** Number of warm-up blocks of each kind. They are not counted, because the JIT compiler still works on them. */
const warmUpBlocks = 5

const value = Buffer.alloc(1024, 'abcdefg')
interface Arm {
  append(producer: number, index: number): Promise<unknown>
  /** Reads every stored value; returns their total size in bytes. */
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
            if (record.headers.type !== 'turn.completed')
              throw new Error("a replayed record lost its header type 'turn.completed'")
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

interface Figures {
  readonly ms: number
  readonly cpuMs: number
}

/** Median wall-clock and CPU milliseconds of each arm over `blocks` blocks. The arms alternate in going first. */
async function compare(
  arms: { readonly bus: Arm; readonly raw: Arm },
  blocks: number,
  act: (arm: Arm) => Promise<unknown>,
): Promise<{ readonly bus: Figures; readonly raw: Figures }> {
  const figures = { bus: [] as Figures[], raw: [] as Figures[] }
  for (let block = 0; block < blocks + warmUpBlocks; block++) {
    const order = block % 2 === 0 ? (['bus', 'raw'] as const) : (['raw', 'bus'] as const)
    for (const name of order) {
      const cpuBefore = process.cpuUsage()
      const ms = await timed(() => act(arms[name]))
      const { user, system } = process.cpuUsage(cpuBefore)
      if (block >= warmUpBlocks) figures[name].push({ ms, cpuMs: (user + system) / 1000 })
    }
  }
  const middle = (of: readonly Figures[]): Figures => ({
    ms: median(of.map(({ ms }) => ms)),
    cpuMs: median(of.map(({ cpuMs }) => cpuMs)),
  })
  return { bus: middle(figures.bus), raw: middle(figures.raw) }
}

/** Appends a block of records: all producers run at once, and each waits for its record before it sends the next. */
function appendBlock(arm: Arm): Promise<unknown> {
  return Promise.all(
    Array.from({ length: producers }, async (_, producer) => {
      for (let index = 0; index < recordsEach; index++) await arm.append(producer, index)
    }),
  )
}

async function timed(act: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await act()
  return performance.now() - start
}

export async function bench(): Promise<BenchReport> {
  const directory = mkdtempSync(join(process.env.TROUPE_BENCH_DIR ?? tmpdir(), 'troupe-bench-bus-'))
  const arms = { bus: await busArm(join(directory, 'bus')), raw: await rawArm(join(directory, 'raw')) }
  try {
    const append = await compare(arms, appendBlocks, appendBlock)
    const appended = producers * recordsEach
    const stored = appended * (appendBlocks + warmUpBlocks)
    const replay = await compare(arms, replayBlocks, async arm => {
      const bytes = await arm.replay()
      if (bytes !== stored * value.length)
        throw new Error(`replay returned ${bytes} bytes; expected ${stored * value.length}`)
    })
    const oneByOne = await compare(arms, oneByOneBlocks, arm => arm.append(0, 0))
    return {
      bench: 'bus',
      machine: describeMachine(),
      metrics: {
        busAppendsPerSecond: (appended / append.bus.ms) * 1000,
        rawAppendsPerSecond: (appended / append.raw.ms) * 1000,
        busAppendCpuUs: (append.bus.cpuMs / appended) * 1000,
        rawAppendCpuUs: (append.raw.cpuMs / appended) * 1000,
        busReplaysPerSecond: (stored / replay.bus.ms) * 1000,
        rawReplaysPerSecond: (stored / replay.raw.ms) * 1000,
        busOneByOneMs: oneByOne.bus.ms,
        rawOneByOneMs: oneByOne.raw.ms,
        producers,
        recordBytes: value.length,
      },
      budgets: [
        atLeast('durable appends, share of raw lmdb', append.raw.ms / append.bus.ms, 0.5),
        atLeast('replay, share of raw lmdb', replay.raw.ms / replay.bus.ms, 0.5),
      ],
    }
  } finally {
    await arms.bus.close()
    await arms.raw.close()
    rmSync(directory, { recursive: true })
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
