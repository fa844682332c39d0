/** Python processes that need torch: forked from one that has imported it, and as good as spawned ones. */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createConnection } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { idleMs, type PythonProcess } from '../../backends/forkServer'
import { runPython, startPython } from '../../backends/pythonProcess'
import { processStat } from '../../cli/io/processes'
import '../support/ownForkServers'
import { until } from '../support/until'

jest.setTimeout(120_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-forks-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const initModel = 'troupe_policy.model.init_model'

interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stderr: string
}

function ending(child: PythonProcess): Promise<Ended> {
  let stderr = ''
  child.stdout.resume()
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  return new Promise(resolve => child.once('close', (code, signal) => resolve({ code, signal, stderr })))
}

const parentOf = (child: PythonProcess): number => processStat(child.pid!).parent

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** A server whose model is not there: it says so and ends with 1. */
const doomed = () =>
  startPython({
    module: 'troupe_policy.server',
    args: parent => ['--serve', 'engine', '--model', '/nonexistent', '--parent', String(parent), '--socket', 'x'],
  })

test('a fork has the arguments, the streams and the exit code of a spawned process', async () => {
  const [forked, spawned] = await Promise.all(
    [true, false].map(async mayFork =>
      ending(await startPython({ module: initModel, args: () => ['--out', '/tmp/x', '--spec', '{"a": 1}'], mayFork })),
    ),
  )
  expect(forked).toEqual(spawned)
  expect(forked).toMatchObject({ code: 1, stderr: expect.stringContaining("unknown field 'a'") })
  await expect(runPython({ module: initModel, args: () => [] }, 60_000)).rejects.toMatchObject({
    code: 2,
    message: expect.stringContaining('the following arguments are required: --out'),
  })
})

/** A process that serves until its stdin ends. Resolves when it serves. */
async function serving(): Promise<PythonProcess> {
  const child = await startPython({
    module: 'troupe_policy.fork_server',
    args: parent => [join(directory, randomUUID()), '--parent', String(parent)],
  })
  await new Promise(resolve => child.stdout.once('data', resolve))
  return child
}

test('forks have one parent, which imports torch once; /proc shows the command line of each', async () => {
  const children = [await serving(), await serving()]
  const parents = new Set(children.map(parentOf))
  const lines = children.map(child =>
    readFileSync(`/proc/${child.pid}/cmdline`, 'utf8').replace(/\0+$/, '').split('\0'),
  )
  for (const child of children) child.stdin.end()
  const ends = await Promise.all(children.map(ending))
  expect(parents.size).toBe(1)
  const [parent] = [...parents]
  expect(parent).not.toBe(process.pid)
  for (const line of lines)
    expect(line.slice(1)).toEqual([
      '-m',
      'troupe_policy.fork_server',
      expect.stringContaining(directory),
      '--parent',
      String(parent),
    ])
  expect(ends).toMatchObject([{ code: 0 }, { code: 0 }])
})

test('a killed fork ends with the signal; when the fork server is killed its forks end, and the next start makes another', async () => {
  const [one, other] = [await serving(), await serving()]
  const server = parentOf(one)
  expect(parentOf(other)).toBe(server)
  one.kill('SIGKILL')
  expect(await ending(one)).toMatchObject({ code: null, signal: 'SIGKILL' })

  process.kill(server, 'SIGKILL')
  expect(await ending(other)).toMatchObject({ code: null, signal: 'SIGKILL' })
  await until(() => !isAlive(other.pid!), 5_000)

  const next = await serving()
  expect(parentOf(next)).not.toBe(server)
  next.stdin.end()
  expect(await ending(next)).toMatchObject({ code: 0, signal: null })
})

test('a fork server closes a connection whose first line is no request, and goes on', async () => {
  const path = join(directory, randomUUID())
  const child = await startPython({
    module: 'troupe_policy.fork_server',
    args: parent => [path, '--parent', String(parent)],
  })
  await new Promise(resolve => child.stdout.once('data', resolve))
  for (const line of ['not JSON\n', '{"stream": "stdio"}\n', '[]\n', 'cut off']) {
    const socket = createConnection(path)
    socket.end(line)
    await new Promise(resolve => socket.resume().once('close', resolve))
  }
  child.stdin.end()
  expect(await ending(child)).toMatchObject({ code: 0, signal: null })
})

test('a fork server without a fork ends', async () => {
  const last = await doomed()
  const server = parentOf(last)
  await ending(last)
  await sleep(idleMs)
  await until(() => !isAlive(server), 5_000)
})
