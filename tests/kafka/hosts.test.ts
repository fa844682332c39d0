/**
 * A run over two hosts whose link is cut in the middle of its turns and healed: broker, coordinator, scheduler and learner on
 * the one, engines and tools on the other. The hosts are network namespaces; where a machine has none, processes with a
 * proxy between them that falls silent. `TROUPE_TEST_LINK=namespaces|proxy` chooses.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { asError } from '../../runtime/errors'
import { type LinkedHost, type LinkedHosts, linkedHosts } from '../support/linkedHosts'
import { until } from '../support/until'

jest.setTimeout(180_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-hosts-'))
const children: ChildProcess[] = []
let hosts: LinkedHosts
beforeAll(async () => {
  const kind = process.env.TROUPE_TEST_LINK as LinkedHosts['kind'] | undefined
  hosts = await linkedHosts('?sessionTimeoutMs=3000', kind)
})
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL')
  await hosts?.close()
  rmSync(directory, { recursive: true, force: true })
})

/** A process on a host, what it has said, and how it ended. */
function start(which: 'near' | 'far', { bus, prefix }: LinkedHost) {
  const child = join(__dirname, '../children/hostChild.ts')
  const command = [process.execPath, '-r', join(__dirname, '../../cli/register.js'), child, which, bus, directory]
  const [program, ...args] = [...prefix, ...command]
  const running = spawn(program!, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  children.push(running)
  let out = ''
  let err = ''
  running.stdout.on('data', chunk => {
    out += chunk
  })
  running.stderr.on('data', chunk => {
    err += chunk
  })
  let code: number | null | undefined
  running.once('exit', ended => {
    code = ended
  })
  const happens = (what: () => boolean) =>
    until(() => {
      if (code) throw new Error(`${which} ended with ${code}: ${err.slice(-2000)}`)
      return what()
    }, 60_000).catch(thrown => {
      throw new Error(`${asError(thrown).message}; ${which} said ${out.slice(-200)} ${err.slice(-2000)}`)
    })
  return {
    count: (type: string) => out.split('\n').filter(line => line === type).length,
    last: () => out.trim().split('\n').at(-1)!,
    happens,
    ended: () => code,
  }
}

test(`a link that is cut in the middle of turns and healed loses nothing and doubles nothing`, async () => {
  const near = start('near', hosts.near)
  const far = start('far', hosts.far)
  const both = async (what: () => boolean) => {
    await far.happens(() => true)
    await near.happens(what)
  }
  await both(() => near.count('step.completed') >= 2)
  const joined = near.count('engine.joined')
  expect(joined).toBe(2)

  hosts.cut()
  // Near takes the engines for dead, and far has been silent for longer than its sessions by then.
  await both(() => near.count('engine.left') === 2)
  const during = near.count('turn.completed')
  await sleep(3000)
  expect(near.count('turn.completed')).toBe(during)
  expect(near.count('run.finished')).toBe(0)

  hosts.heal()
  await both(() => near.count('run.finished') === 1 && near.ended() === 0)
  await far.happens(() => far.ended() === 0)
  expect(near.count('engine.joined')).toBeGreaterThanOrEqual(4)
  const all = Array.from({ length: 8 }, (_, n) => n + 1)
  expect(JSON.parse(near.last())).toMatchObject({
    ...{
      rollouts: 8 * 2 * 6,
      lost: [],
      failed: 0,
      turnsTwice: [],
      steps: all,
      started: all,
      deadLetters: 0,
      violations: [],
    },
  })
})
