/**
 * The trainer's ranks on two hosts, by the documented commands: `troupe train` on one, `troupe ranks` on the other. Hosts are
 * network namespaces; where this machine allows none, both are this machine.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { messagesOf, troupe } from '../support/cli'
import { ofType } from '../support/facts'
import { smallRun } from '../support/smallRun'
import { type Host, twoHosts } from '../support/twoHosts'

const directory = mkdtempSync(join(tmpdir(), 'troupe-hosts-test-'))
const bin = join(__dirname, '../../cli/bin.js')
const children: ChildProcess[] = []
let closeHosts = async () => {}
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL')
  await Promise.all(
    children.map(child => child.exitCode ?? child.signalCode ?? new Promise(done => child.once('close', done))),
  )
  await closeHosts()
  rmSync(directory, { recursive: true, force: true })
})

interface Program {
  readonly child: ChildProcess
  readonly ended: Promise<number | null>
  stderr: string
}

/** Starts Troupe on a host; its processes have the host's name in TEST_HOST. */
function on(host: Host, name: string, args: readonly string[]): Program {
  const [command, ...rest] = [...host.prefix, process.execPath, bin, ...args]
  const child = spawn(command!, rest, { stdio: ['pipe', 'ignore', 'pipe'], env: { ...process.env, TEST_HOST: name } })
  children.push(child)
  const program: Program = { child, ended: new Promise(resolve => child.once('close', resolve)), stderr: '' }
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    program.stderr += text
  })
  return program
}

async function until(what: string, look: () => boolean): Promise<void> {
  for (let tries = 0; tries < 2400; tries++) {
    if (look()) return
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  throw new Error(`never: ${what}`)
}

const port = 29_417

/** Numbers of the trainer's ranks by the host that they run on. */
function ranksByHost(): Readonly<Record<string, readonly number[]>> {
  const found: Record<string, number[]> = {}
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const pairs = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
      const value = (name: string) => pairs.find(pair => pair.startsWith(`${name}=`))?.slice(name.length + 1)
      const [rank, host] = [value('RANK'), value('TEST_HOST')]
      if (rank === undefined || host === undefined || value('MASTER_PORT') !== String(port)) continue
      found[host] = [...(found[host] ?? []), Number(rank)].sort()
    } catch {
      // the process has ended
    }
  }
  return found
}

const thisMachine = { near: { ip: '127.0.0.1', prefix: [] }, far: { ip: '127.0.0.1', prefix: [] }, close: closeHosts }

test('two hosts of two ranks train a step as one host would; the first ranks are on the host of the learner', async () => {
  const { near, far, close } = (await twoHosts()) ?? thisMachine
  closeHosts = close
  const ranks = ['train.ranks=4', 'train.nodes=2', `train.rendezvous=${near.ip}:${port}`, 'train.threads=1']
  const settings = [...smallRun(50), ...[...ranks, 'evaluation.problems=0'].flatMap(text => ['--set', text])]
  const bus = ['--bus', `lmdb:${directory}`]
  const learner = on(near, 'learner', ['train', 'quickstart', '--run', 'r', '--steps', '1', ...bus, ...settings])
  const model = join(directory, 'runs/r/model')
  await until('the model is made', () => {
    if (learner.child.exitCode !== null) throw new Error(learner.stderr)
    return existsSync(join(model, 'config.json')) && existsSync(join(model, 'model.safetensors'))
  })
  const other = on(far, 'other', ['ranks', 'quickstart', '--node', '1', '--model', model, ...settings])
  await until('the ranks have met', () => {
    const ended = [other, learner].find(({ child }) => child.exitCode !== null)
    if (ended !== undefined) throw new Error(ended.stderr)
    return other.stderr.includes('ranks 2 to 3 of 4: ready')
  })
  expect(ranksByHost()).toEqual({ learner: [0, 1], other: [2, 3] })
  if ((await learner.ended) !== 0) throw new Error(learner.stderr)
  expect(learner.stderr).not.toContain('rank_lost')
  // The learner's ranks are gone; the other host's end with them and wait for the next ones, until a signal.
  await until('the other host starts anew', () => other.stderr.split('waiting for the other hosts').length > 2)
  other.child.kill('SIGTERM')
  expect(await other.ended).toBe(143)
  const steps = ofType(await messagesOf(directory, 'r', 'learner'), 'step.completed')
  expect(steps.map(({ step }) => step)).toEqual([1])
  const again = await troupe(['replay', 'learn', '1', '--run', 'r', '--check', '1e-4', ...bus]).done
  expect(again.code).toBe(0)
}, 400_000)

test('ranks that no host is left for, and hosts that do not know where to meet, are refused before anything starts', async () => {
  const refused = async (...settings: readonly string[]) => {
    const args = ['ranks', 'rstar2', '--node', '1', ...settings.flatMap(text => ['--set', text])]
    const { code, stderr } = await troupe(args).done
    expect(code).toBe(2)
    return stderr
  }
  expect(await refused('train.nodes=1')).toContain('train.nodes is 1')
  expect(await refused()).toContain('train.rendezvous is missing although train.nodes is 8')
  expect(await refused('train.nodes=7', 'train.rendezvous=a:1')).toContain('64 ranks cannot be spread equally over 7')
  expect(await refused('train.nodes=2', 'train.rendezvous=nowhere')).toContain('must be HOST:PORT')
})
