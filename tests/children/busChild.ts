/**
 * A second process for the tests of the lmdb bus. Usage: busChild.ts TASK DIR. Errors are printed as `error CODE MESSAGE`.
 *
 * write: appends until it is killed, and prints each acknowledged offset. hold: opens the log for writing and waits. tail:
 * follows the log and prints the first characters of each value. check DIR…: opens each log for reading, then for writing,
 * and prints the outcome. full: appends until the disk is full, removes DIR/filler to make room, and continues. filled: opens
 * logs on a full disk. stall: blocks all writers for 20 s.
 */
import { appendFileSync, rmSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { open as openLmdb } from 'lmdb'
import { openLmdbBus } from '../../runtime/bus'
import { asError, TroupeError } from '../../runtime/errors'

const [task, directory, ...more] = process.argv.slice(2) as [string, string, ...string[]]
const say = (line: string): void => void writeSync(1, `${line}\n`)

function errorLine(thrown: unknown): string {
  const error = asError(thrown)
  return `error ${error instanceof TroupeError ? error.code : error.name} ${error.message}`
}

async function check(): Promise<void> {
  for (const each of [directory, ...more]) {
    for (const mode of ['read', 'write'] as const) {
      try {
        const bus = await openLmdbBus({ directory: each, mode })
        say('opened')
        await bus.close()
      } catch (thrown) {
        say(errorLine(thrown))
      }
    }
  }
}

/** Holds lmdb's write lock for 20 s. */
function stall(): void {
  const root = openLmdb({ path: directory, noSubdir: false, overlappingSync: false })
  root.transactionSync(() => {
    say('stalled')
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20_000)
  })
}

/** Fills the disk to its last byte. */
function fillDisk(name: string): void {
  writeFileSync(name, '')
  try {
    for (;;) appendFileSync(name, Buffer.alloc(4096))
  } catch {
    // It is full.
  }
}

/** Opens logs on a full disk. */
async function filled(): Promise<void> {
  const old = join(directory, 'old')
  const bus = await openLmdbBus({ directory: old, mode: 'write' })
  say('open')
  await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
  await bus.append([{ topic: 't', key: 'k', headers: {}, value: Buffer.alloc(9) }])
  await bus.close()
  const filler = join(directory, 'filler')
  fillDisk(filler)
  const reader = await openLmdbBus({ directory: old, mode: 'read' })
  say(`read ${(await reader.read('t', 0, 0)).length}`)
  await reader.close()
  for (const each of [old, join(directory, 'new')]) {
    await openLmdbBus({ directory: each, mode: 'write' }).catch(thrown => say(errorLine(thrown)))
  }
  rmSync(filler)
  const again = await openLmdbBus({ directory: old, mode: 'write' })
  say(`then ${(await again.append([{ topic: 't', key: 'k', headers: {}, value: Buffer.alloc(9) }]))[0]!.offset}`)
  await again.close()
}

async function main(): Promise<void> {
  if (task === 'stall') return stall()
  if (task === 'filled') return await filled()
  if (task === 'check') return await check()
  const bus = await openLmdbBus({ directory, mode: task === 'tail' ? 'read' : 'write' })
  say('open')
  switch (task) {
    case 'write': {
      await bus.createTopics([{ topic: 't', partitions: 2, retentionMs: null }])
      const producer = async (name: string): Promise<void> => {
        for (let i = 0; ; i++) {
          const text = `${name}.${i}`
          const value = Buffer.from(text.padEnd(700, '.'))
          const [position] = await bus.append([{ topic: 't', key: name, headers: { text }, value }])
          say(`${position!.partition} ${position!.offset} ${text}`)
        }
      }
      await Promise.all(Array.from({ length: 20 }, (_, i) => producer(`p${i}`)))
      break
    }
    case 'full': {
      await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
      const some = [{ topic: 't', key: 'k', headers: {}, value: Buffer.alloc(10_000, 1) }]
      let acknowledged = 0
      try {
        for (;;) acknowledged = (await bus.append(some))[0]!.offset + 1
      } catch (thrown) {
        say(errorLine(thrown))
      }
      // With no byte left, each further write fails as a whole: lmdb itself does not survive that.
      fillDisk(join(directory, 'rest'))
      const again = new Set<string>()
      for (let i = 0; i < 200; i++) await bus.append(some).catch(thrown => again.add((thrown as TroupeError).code))
      say(`again ${[...again]}`)
      say(`acknowledged ${acknowledged} of ${(await bus.offsets('t', 0)).next}`)
      rmSync(join(directory, 'filler'))
      say(`then ${(await bus.append(some))[0]!.offset - acknowledged}`)
      await bus.close()
      const reopened = await openLmdbBus({ directory, mode: 'write' })
      say(`reopened ${(await reopened.offsets('t', 0)).next - acknowledged}`)
      await reopened.close()
      break
    }
    case 'tail':
      await bus.subscribe(
        {
          topics: ['t'],
          group: 'tail',
          from: 'earliest',
          onError: error => say(`error ${error.message}`),
        },
        async records => {
          process.stdout.write(records.map(({ value }) => `${Buffer.from(value).toString('utf8', 0, 20)}\n`).join(''))
        },
      )
      break
    default:
      setInterval(() => {}, 1000)
  }
}

main().catch(thrown => {
  say(errorLine(thrown))
  process.exitCode = 1
})
