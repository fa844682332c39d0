/**
 * What the code of a session may try to outlive its call, or to end others: when a cell is answered nothing of it runs,
 * the next cell sees the state that it should, and with the session everything of it is gone.
 */
import { openSandbox, openSession, type Sandbox, type Session } from '../../sandbox'
import { heldBy, processesOf } from '../support/sessionProcesses'
import { until } from '../support/until'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')
const PRELUDE = `
import ctypes, os, signal, time
x = 1
libc = ctypes.CDLL(None)
def clone(): return libc.syscall(56, 0x8011, 0, 0, 0, 0)  # CLONE_PARENT | SIGCHLD: what a paused cell may do
`

let sandbox: Sandbox & { readonly zygotePids?: readonly number[] }
const sessions: Session[] = []
let pids: readonly number[] | undefined
beforeAll(async () => {
  sandbox = await openSandbox({ requireLevel: 'full', zygotes: 1, lanes: 8 })
  await sandbox.run({ id: 'warm', code: '1' })
  pids = sandbox.zygotePids
})
afterEach(() => {
  for (const session of sessions.splice(0)) session.close()
})
afterAll(() => sandbox.close())

const attacks: Readonly<Record<string, readonly [code: string, ...statuses: string[]]>> = {
  'a process that runs on': ['if clone() == 0:\n  while True: pass', 'ok'],
  'a process that runs on while the cell exits': ['if clone():\n  os._exit(3)\nwhile True: pass', 'error'],
  'a process that ends before the cell does': ['if clone() == 0: os._exit(0)\ntime.sleep(0.1)\nprint("whole")', 'ok'],
  'a process that ends while the cell computes': ['if clone() == 0: os._exit(0)\nwhile True: pass', 'timeout'],
  'a process that stops': ['if clone() == 0: os.kill(os.getpid(), 19)\ntime.sleep(0.1)', 'ok'],
  'processes that stop and wake one another': [
    'if clone() == 0:\n  while True: os.kill(-1, 18); os.kill(os.getpid(), 19)\ntime.sleep(0.1)',
    'ok',
    'killed',
  ],
  'a chain of processes': ['while clone() == 0: pass', 'ok', 'killed', 'timeout'],
  'processes without end': ['while True: clone()', 'timeout', 'killed'],
  // On a machine that is short of cores they may keep the cell from its end until its limit.
  'processes without end that the cell leaves': ['if clone() == 0:\n  while True: clone()', 'ok', 'killed', 'timeout'],
  'the cells before it, woken': ['os.kill(-1, signal.SIGCONT)\ntime.sleep(0.2)', 'ok', 'killed'],
  'the cells before it, killed': ['os.kill(-1, signal.SIGKILL)\ntime.sleep(0.1)', 'ok', 'killed'],
  'the first process of its namespace': [
    'for s in range(1, 65):\n  try: os.kill(1, s)\n  except OSError: pass\nprint("there")',
    'ok',
  ],
  'a cell that stops itself': ['os.kill(os.getpid(), signal.SIGSTOP)', 'killed'],
  'a forged end': [
    'for fd in range(3, 64):\n  try: os.write(fd, b"\\0\\0\\0\\0")\n  except OSError: pass\nos.kill(os.getpid(), signal.SIGSTOP)',
    'ok',
    'killed',
  ],
  'words without end to whoever listens': [
    'if clone() == 0:\n  while True: libc.write(4, b"\\1\\0\\0\\0", 4)\ntime.sleep(0.2)',
    'ok',
    'error',
    'killed',
  ],
}

test.each(Object.entries(attacks))('%s: nothing runs when the call is answered', async (_, [code, ...statuses]) => {
  const session = openSession(sandbox)
  sessions.push(session)
  await session.run('0')
  await session.run(PRELUDE)
  const result = await session.run(code, { timeoutMs: 700 })
  await until(() => processesOf(sandbox).every(({ doing }) => doing === 'T'), 1000) // a state that is not needed dies
  expect(statuses).toContain(result.status)
  if (code.includes('whole')) expect(text(result.stdout)).toBe('whole\n')
  const next = await session.run('x', { timeoutMs: 5000 })
  // Code that lies about its end may lose its own session, and is told.
  if (next.status !== 'timeout' || !code.includes('write')) expect(text(next.stdout)).toBe('1\n')
  session.close()
  await until(() => heldBy(sandbox)[0] === 0)
  expect(text((await sandbox.run({ id: 'alive', code: 'print("alive")' })).stdout)).toBe('alive\n')
  expect(sandbox.zygotePids).toEqual(pids)
})

test('sessions whose first cell stops itself, or is killed, leave no namespace and no descriptor', async () => {
  const before = heldBy(sandbox)
  for (const code of ['os.kill(os.getpid(), signal.SIGSTOP)', 'os._exit(1)', 'while True: pass']) {
    for (let n = 0; n < 5; n++) {
      const session = openSession(sandbox)
      await session.run(`${PRELUDE}\n${code}`, { timeoutMs: 200 })
      if (n % 2) session.close()
    }
  }
  await until(() => heldBy(sandbox)[0] === before[0])
  expect(heldBy(sandbox)).toEqual(before)
})
