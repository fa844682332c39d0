/** Zygotes that are killed while the sandbox opens, and under a tool's call: the level stays, and the call runs again. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { openSandbox, runNotebookCell, runPythonTool, type Sandbox } from '../../sandbox'
import { retryKilled } from '../../sandbox/retryKilled'
import { until } from '../support/until'

jest.setTimeout(60_000)

/** Pids of this process's zygotes, from the moment that each exists; their children have other parents. */
function zygotes(): number[] {
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name)) return []
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'latin1')
      const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      const isOurs = state !== 'Z' && Number(parent) === process.pid
      return isOurs && readFileSync(`/proc/${name}/cmdline`, 'latin1').includes('zygote.py') ? [Number(name)] : []
    } catch {
      return [] // it has ended
    }
  })
}

const hasChild = (pid: number) => readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1') !== ''

/** A zygote that has had a child for so long that the child's code runs. */
const runsCall = (pid: number) => {
  try {
    const [child] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').split(' ').filter(Boolean)
    const stat = readFileSync(`/proc/${child}/stat`, 'latin1')
    const ticks = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19])
    return Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) - ticks / 100 > 0.4
  } catch {
    return false // it has no child, or has ended
  }
}

/**
 * Program that kills each zygote of a process until its stdin ends. It is a process of its own, so that a busy event
 * loop of this one lets no zygote live.
 */
const killZygotes = `
import os, select, signal, sys
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    for task in os.listdir(f"/proc/{sys.argv[1]}/task"):
        try:
            for pid in open(f"/proc/{sys.argv[1]}/task/{task}/children").read().split():
                is_other = int(pid) != os.getpid()  # the text of this program names zygote.py too
                if is_other and b"zygote.py" in open(f"/proc/{pid}/cmdline", "rb").read():
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
`

const opened: Sandbox[] = []
afterEach(async () => {
  for (const sandbox of opened.splice(0)) await sandbox.close()
})
const open = async (): Promise<Sandbox> => {
  const sandbox = await openSandbox({ zygotes: 1 })
  opened.push(sandbox)
  return sandbox
}

/** Kills each of so many zygotes: `when` milliseconds after it has appeared, or as soon as it has a child. */
async function killNext(times: number, when: number | 'its check runs'): Promise<number> {
  let killed = 0
  for (const seen = new Set<number>(); killed < times; ) {
    const next = zygotes().find(pid => !seen.has(pid))
    if (next === undefined) {
      await sleep(1)
      continue
    }
    seen.add(next)
    if (when === 'its check runs') await until(() => hasChild(next), 20_000, 1)
    else await sleep(when)
    process.kill(next, 'SIGKILL')
    killed++
  }
  return killed
}

test.each([0, 60, 'its check runs'] as const)(
  'zygotes that are killed as they start lower no level (%p)',
  async when => {
    const [sandbox, killed] = await Promise.all([open(), killNext(2, when)])
    expect(killed).toBe(2)
    expect(sandbox.level).toBe('full')
  },
)

test('zygotes that are killed again and again as they start are an error to be tried again, never a lower level', async () => {
  const killer = spawn('python3', ['-I', '-c', killZygotes, String(process.pid)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  await once(killer.stdout, 'data') // it runs
  await expect(open()).rejects.toMatchObject({ code: 'sandbox.start_failed', retriable: true })
  killer.stdin.end()
  await once(killer, 'close')
})

test('a tool call and a notebook cell whose zygote is killed run again; one that kills it each time is answered as killed', async () => {
  const sandbox = await open()
  const code = 'import time; time.sleep(1); 6 * 7'
  let over = false
  const killOnce = async () => {
    await until(() => over || zygotes().some(runsCall), 20_000)
    for (const pid of zygotes().filter(runsCall)) process.kill(pid, 'SIGKILL')
  }
  const [called] = await Promise.all([runPythonTool(sandbox, { code, input: '' }), killOnce()])
  expect(called).toMatchObject({ status: 'ok', stdout: '42\n' })
  await runNotebookCell(sandbox, { code: 'x = 6', session: 's', before: [] })
  const cell = { code: 'import time; time.sleep(1); x * 7', session: 's', before: ['x = 6'] }
  const [ran] = await Promise.all([runNotebookCell(sandbox, cell), killOnce()])
  expect(ran).toMatchObject({ status: 'ok', stdout: '42\n' })
  const killing = (async () => {
    while (!over) await killOnce()
  })()
  const deadly = await runPythonTool(sandbox, { code: 'import time; time.sleep(5)', input: '' }, { timeoutMs: 20_000 })
  over = true
  await killing
  expect(deadly).toMatchObject({ status: 'killed', signal: 'SIGKILL' })
  await until(() => zygotes().length > 0)
})

test('short work whose process is killed is done again, three times at most; its own failures are not', async () => {
  const failing = (error: object, after: number) => {
    let tries = 0
    return async () => {
      if (++tries <= after) throw Object.assign(new Error(`try ${tries}`), error)
      return tries
    }
  }
  const killed = { signal: 'SIGKILL', killed: false }
  expect(await retryKilled(failing(killed, 2))).toBe(3)
  await expect(retryKilled(failing(killed, 3))).rejects.toThrow('try 3')
  await expect(retryKilled(failing({ code: 1, signal: null, killed: false }, 1))).rejects.toThrow('try 1')
  await expect(retryKilled(failing({ signal: 'SIGKILL', killed: true }, 1))).rejects.toThrow('try 1')
})
