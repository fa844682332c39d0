/** A log whose files lmdb cannot open: the error is named, and the process lives. */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openLmdbBus } from '../../../runtime/bus'
import { until } from '../../support/until'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-lock-file-'))
const sound = join(directory, 'sound')
const isRoot = process.getuid?.() === 0
const other = 65_534
const held: ChildProcess[] = []
afterAll(() => {
  for (const holder of held) holder.kill('SIGKILL')
  rmSync(directory, { recursive: true, force: true })
})

beforeAll(async () => {
  const bus = await openLmdbBus({ directory: sound, mode: 'write' })
  await bus.createTopics([{ topic: 'a', partitions: 1, retentionMs: null }])
  await bus.close()
  rmSync(join(sound, 'lock.mdb'))
  chmodSync(directory, 0o755)
})

const register = join(__dirname, '../../../cli/register.js')
const lmdbBus = join(__dirname, '../../../runtime/bus/lmdb/lmdbBus.ts')

/**
 * Opens logs one after the other in a process, each for reading, then for writing. Returns a line for each: the mode,
 * then `opened` or the error's code and message. `user`: becomes this user first, once its modules are loaded.
 */
function opened(logs: readonly string[], user?: number) {
  const program = `
    const { openLmdbBus } = require(${JSON.stringify(lmdbBus)})
    const open = async (directory, mode) => (await openLmdbBus({ directory, mode })).close()
    const main = async () => {
      await open(${JSON.stringify(sound)}, 'read')
      ${user === undefined ? '' : `process.setgroups([]); process.setgid(${user}); process.setuid(${user})`}
      for (const log of ${JSON.stringify(logs)}) for (const mode of ['read', 'write']) {
        const said = await open(log, mode).then(() => 'opened', error => (error.code ?? error.stack) + ' ' + error.message)
        console.log(mode + ' ' + said)
      }
    }
    void main()`
  const ran = spawnSync(process.execPath, ['-r', register, '-e', program], { encoding: 'utf8', timeout: 30_000 })
  expect({ signal: ran.signal, status: ran.status, stderr: ran.stderr }).toEqual({
    signal: null,
    status: 0,
    stderr: '',
  })
  return ran.stdout.trim().split('\n')
}

let made = 0
function log(file: string, damage: (path: string) => void): string {
  const copy = join(directory, `log${made++}`)
  cpSync(sound, copy, { recursive: true })
  rmSync(join(copy, file), { force: true })
  damage(join(copy, file))
  return copy
}

const damages: Readonly<Record<string, (path: string) => void>> = {
  'is a directory': path => mkdirSync(path),
  'is a link that leads nowhere': path => symlinkSync('nowhere/x', path),
  'is a link that leads back': path => symlinkSync('lock.mdb', path),
  'is a FIFO': path => void execFileSync('mkfifo', [path]),
}

test('a lock file that lmdb cannot open is named in either mode', () => {
  const huge = (path: string): void => {
    writeFileSync(path, '')
    truncateSync(path, 2 ** 39)
  }
  const all = Object.entries({ ...damages, 'has 549755813888 bytes': huge })
  const logs = all.map(([, damage]) => log('lock.mdb', damage))
  const expected = all.flatMap(([why], i) => {
    const line = expect.stringContaining(`bus.bad_lock the lock file ${join(logs[i]!, 'lock.mdb')} ${why}`)
    return [line, line]
  })
  expect(opened(logs)).toEqual(expected)
})

test('a data file that is none is named in either mode, and a FIFO or socket blocks nobody', async () => {
  const logs = Object.values({ ...damages, 'is a link that leads back': () => {} }).map(damage =>
    log('data.mdb', damage),
  )
  const server = createServer().listen(
    join(
      log('data.mdb', () => {}),
      'data.mdb',
    ),
  )
  await new Promise(listening => server.once('listening', listening))
  logs.push(join(String(server.address()), '..'))
  const found = opened(logs)
  server.close()
  const lines = ['directory', 'link that leads nowhere', undefined, 'FIFO', 'socket'].flatMap(what => {
    const line = expect.stringMatching(`bus.not_a_log .*data.mdb is a ${what}`)
    // A missing file is no log for a reader; a writer makes it.
    return what === undefined ? [expect.stringContaining('data.mdb is missing'), 'write opened'] : [line, line]
  })
  expect(found.map((line, i) => (lines[i] === 'write opened' ? line : line.slice(line.indexOf('bus.'))))).toEqual(lines)
})

test('a lock file of another user is named with owner and mode when the log is written; it can be read without a lock', () => {
  const locked = (mode: number) =>
    log('lock.mdb', path => {
      const folder = join(path, '..')
      if (isRoot) for (const one of [folder, join(folder, 'data.mdb')]) chownSync(one, other, other)
      writeFileSync(path, '')
      chmodSync(path, mode)
    })
  const [owner, user] = isRoot ? [0, other] : [process.getuid!(), process.getuid!()]
  const refused = (mode: string) =>
    expect.stringMatching(`write bus.bad_lock .* user ${owner} .* mode ${mode}; this process runs as user ${user}`)
  expect(opened([locked(0o444), locked(0o000)], isRoot ? other : undefined)).toEqual([
    ...['read opened', refused('444'), 'read opened', refused('000')],
  ])
})

test('a log that this user may not read, or read and not write, is named with the path', () => {
  const modes = [0o000, 0o444].map(mode => {
    const copy = log('lock.mdb', () => {})
    chmodSync(join(copy, 'data.mdb'), mode)
    return copy
  })
  const closed = log('lock.mdb', path => chmodSync(join(path, '..'), 0o000))
  const path = (copy: string) => join(copy, 'data.mdb')
  expect(opened([...modes, closed], isRoot ? other : undefined)).toEqual([
    expect.stringContaining(`read bus.no_access ${path(modes[0]!)} cannot be opened for reading (EACCES)`),
    expect.stringContaining(`write bus.no_access ${path(modes[0]!)} cannot be opened for writing (EACCES)`),
    'read opened',
    expect.stringContaining(`write bus.no_access ${path(modes[1]!)} cannot be opened for writing (EACCES)`),
    expect.stringContaining(`read bus.no_access ${path(closed)} cannot be looked at (EACCES)`),
    expect.stringContaining(`write bus.no_access ${path(closed)} cannot be looked at (EACCES)`),
  ])
  chmodSync(closed, 0o755)
})

const ofRoot = isRoot ? test : test.skip

ofRoot('root looks at the run of a user, who can still write it', () => {
  const copy = log('lock.mdb', path => {
    for (const one of [join(path, '..'), join(path, '../data.mdb')]) chownSync(one, other, other)
  })
  expect(opened([copy])[0]).toBe('read opened')
  expect(statSync(join(copy, 'lock.mdb')).uid).toBe(other)
  expect(opened([copy], other)).toEqual(['read opened', 'write opened'])
})

const onLinux = existsSync('/proc/locks') ? test : test.skip

onLinux(
  'a lock file that was overwritten or cut off while a process uses it is named; without such a process it is made anew',
  async () => {
    const copy = log('lock.mdb', () => {})
    const path = join(copy, 'lock.mdb')
    const program = `require(${JSON.stringify(lmdbBus)}).openLmdbBus({ directory: ${JSON.stringify(copy)}, mode: 'read' })
    .then(() => console.log('held')); setInterval(() => {}, 1000)`
    const holder = spawn(process.execPath, ['-r', register, '-e', program])
    held.push(holder)
    let said = ''
    holder.stdout!.on('data', chunk => {
      said += chunk
    })
    await until(() => said.includes('held'), 20_000)
    expect(opened([copy])).toEqual(['read opened', 'write opened'])
    for (const content of [Buffer.alloc(12_288, 7), Buffer.alloc(9)]) {
      writeFileSync(path, content)
      const line = expect.stringContaining(`overwritten or cut off while process ${holder.pid} uses it`)
      expect(opened([copy])).toEqual([line, line])
    }
    const ended = new Promise(end => holder.once('close', end))
    holder.kill('SIGKILL')
    await ended
    expect(opened([copy])).toEqual(['read opened', 'write opened'])
  },
)
