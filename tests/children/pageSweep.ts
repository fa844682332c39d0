/**
 * Damages copies of a log, and prints how `replay verify`, `replay show` and a writer take each damage.
 *
 * in   a directory with the run `history`; `all` pages, or a number of random damages and a seed
 * out  a line for each damage before it is tried, then a line {page, how, use, result} for each use. result: `same` as on the
 * sound log, `named CODE` for an error, or `wrong` with the text. If a damage kills the process, its line is the last one.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findDamage } from '../../runtime/bus/lmdb/pages/checkPages'
import { asError, TroupeError } from '../../runtime/errors'
import { openRun } from '../../runtime/openRun'
import { commandHere } from '../support/commandHere'

const [directory = '', count = 'all', seed = '0'] = process.argv.slice(2)
const pageBytes = 4096
const sound = readFileSync(join(directory, 'runs/history/log/data.mdb'))
const damagedDirectory = join(directory, 'damaged')
const log = join(damagedDirectory, 'runs/history/log')
const address = `lmdb:${damagedDirectory}`
const line = (value: object): void => void process.stdout.write(`${JSON.stringify(value)}\n`)
/** Errors that a damaged log may give. */
const named = /code: bus\.(torn|corrupt|not_a_log)|unreadable: |gap: |"kind":"(unreadable|gap|pages)"/

interface Damage {
  readonly page: number
  readonly how: string
  readonly bytes: Buffer
}

const random = (n: number, below: number): number =>
  createHash('sha256').update(`${seed} ${n}`).digest().readUIntLE(0, 6) % below

function* damages(): Generator<Damage> {
  const pages = sound.length / pageBytes
  const flip = (bit: number): Damage => {
    const bytes = Buffer.from(sound)
    bytes[bit >> 3]! ^= 1 << (bit & 7)
    return { page: Math.floor(bit / 8 / pageBytes), how: `bit ${bit % (8 * pageBytes)}`, bytes }
  }
  const zero = (page: number): Damage => {
    const bytes = Buffer.from(sound)
    bytes.fill(0, page * pageBytes, (page + 1) * pageBytes)
    return { page, how: 'zeroed', bytes }
  }
  for (let page = 0; count === 'all' && page < pages; page++) {
    yield zero(page)
    yield flip(8 * pageBytes * page + random(page, 8 * pageBytes))
  }
  // Half of the random bits lie in the first 256 bytes of a page, where headers and places of nodes are.
  for (let n = 0; count !== 'all' && n < Number(count); n++) {
    const within = random(4 * n, 2) === 0 ? random(4 * n + 1, 8 * 256) : random(4 * n + 1, 8 * pageBytes)
    yield flip(8 * pageBytes * random(4 * n + 2, pages) + within)
  }
}

/** Runs a command as the CLI does. Returns what it printed and its exit code. */
async function cli(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await commandHere([
    'replay',
    ...args,
    '--bus',
    address,
    '--run',
    'history',
    '--json',
  ])
  return `${code}\n${stdout.replace(/"seconds":[\d.e-]+/, '')}\n${stderr}`
}

/** Opens the log as a resume does, reads all of it, appends, and reads it again. */
async function resume(): Promise<string> {
  try {
    const first = await digests('write')
    const damage = findDamage(join(log, 'data.mdb'))
    const second = await digests('read')
    return damage === undefined && second === first ? first : `the append changed the log: ${damage} ${first} ${second}`
  } catch (thrown) {
    const error = asError(thrown)
    return error instanceof TroupeError ? `code: ${error.code}` : `raw ${error.stack}`
  } finally {
    process.exitCode = 0
  }
}

async function digests(mode: 'write' | 'read'): Promise<string> {
  const { bus } = await openRun(address, 'history', mode)
  try {
    const topics = [...(await bus.listTopics())].sort((a, b) => (a.topic < b.topic ? -1 : 1))
    const hash = createHash('sha256').update(JSON.stringify(topics))
    for (const { topic, partitions } of topics) {
      for (let partition = 0; partition < partitions; partition++) {
        const { oldest, next } = await bus.offsets(topic, partition)
        hash.update(`${topic} ${partition} ${oldest} ${await bus.committed('owners', topic, partition)}`)
        for (let offset = oldest; offset < next; ) {
          const records = await bus.read(topic, partition, offset)
          if (records.length === 0) throw new Error(`nothing at ${topic}/${partition}:${offset} of ${next}`)
          for (const record of records) {
            if (record.key !== 'appended')
              hash.update(JSON.stringify({ ...record, value: undefined })).update(record.value)
          }
          offset = records[records.length - 1]!.offset + 1
        }
      }
      if (mode === 'write') await bus.append([{ topic, key: 'appended', headers: {}, value: Buffer.alloc(9000, 7) }])
    }
    return hash.digest('hex')
  } finally {
    await bus.close()
  }
}

const uses = { verify: () => cli('verify'), show: () => cli('show', 's0001.0000/0'), resume } as const

async function tried(bytes: Buffer, use: keyof typeof uses): Promise<string> {
  rmSync(damagedDirectory, { recursive: true, force: true })
  mkdirSync(log, { recursive: true })
  writeFileSync(join(log, 'data.mdb'), bytes)
  return uses[use]()
}

async function sweep(): Promise<void> {
  const expected = {
    verify: await tried(sound, 'verify'),
    show: await tried(sound, 'show'),
    resume: await tried(sound, 'resume'),
  }
  line({ expected })
  for (const { page, how, bytes } of damages()) {
    for (const use of ['verify', 'show', 'resume'] as const) {
      line({ page, how, use })
      const got = await tried(bytes, use)
      const isNamed = named.test(got) && !/\n {4}at /.test(got)
      const result =
        got === expected[use] ? 'same' : isNamed ? `named ${named.exec(got)![0]}` : `wrong ${got.slice(0, 2000)}`
      line({ page, how, use, result })
    }
  }
  line({ done: true })
}

void sweep()
