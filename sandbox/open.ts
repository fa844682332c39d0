/**
 * Opens a sandbox at the level that the options name, else at the highest level that this machine reaches. Levels
 * `full` and `degraded` are tried: a zygote (a warm interpreter that forks a child for each call) runs a program that
 * tries to escape.
 *
 * in   options      out  a Sandbox, or a SandboxError; from `probeLevels`, for each level whether it was reached
 * Invariant: the sandbox claims `full` or `degraded` only after it was tried in this process on this machine;
 * `requireLevel` fails closed.
 */
import { rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { SandboxError } from './errors'
import { openProcessPool } from './freshProcess/pool'
import { checkBounds } from './integerBounds'
import { findInterpreter, type Interpreter } from './interpreter'
import { MAX_STREAM_BYTES } from './limits'
import { machineMemory } from './machineMemory'
import { MemoryBudget, processBudget } from './memoryBudget'
import { DEFAULT_QUEUE_LIMIT, OPTION_BOUNDS, preloadGroups, type SandboxOptions } from './options'
import { retryLost } from './retryLost'
import type { RunResult, Sandbox, SandboxLevel } from './sandbox'
import { temporaryDirectory } from './temporaryDirectory'
import { workerFile } from './workerFile'
import { controlFrame } from './zygote/frames'
import { ZygotePool } from './zygote/pool'
import type { ZygoteSetup } from './zygote/worker'

const { compileShim } = require('./zygote/compile.js') as { compileShim(): Promise<string | null> }

const LEVELS: readonly SandboxLevel[] = ['full', 'degraded', 'none']
const CHECK_MS = 30_000
const LANES_A_ZYGOTE = 60
const SESSION_MEMORY_MB = 1024
const MEMORY_WAIT_MS = 600_000
/** Upper bound on the open descriptors of each process of a call. */
const OPEN_FILES = 64
/** Upper bound on the threads of a call that may start no processes. */
const THREADS = 64
const TMP_MB = 16
/** Size of /tmp in MiB for calls that may start processes: larger, since a compiler needs room. */
const TMP_MB_PROCESSES = 64
/**
 * Upper bounds on the calls of one zygote that compute at once: fresh ones (RUNNABLE), and those that have used more
 * than 20 ms of CPU time (LONG; more where few calls are long, see shim/admission.h).
 */
const RUNNABLE = 2
const LONG = 3
/**
 * First of the 1000 user ids that this process, if it is root, assigns to its zygotes in turn. Level `none` does not
 * use them.
 */
const FIRST_UID = 210_000

/** For each level, a program that tries to escape from the sandbox: every attempt must fail with OSError. */
const CHECK: Readonly<Record<'full' | 'degraded', string>> = {
  full: `
import os, socket
tries = [socket.socket, os.fork, lambda: open('/etc/shadow'), lambda: open('/usr/troupe', 'w'), lambda: os.listdir('/proc')]
`,
  degraded: `
import os, socket
tries = [socket.socket, os.fork, lambda: os.listdir('/etc'), lambda: open('/tmp/troupe', 'w'), lambda: os.listdir('/proc'),
  lambda: os.kill(os.getppid(), 0)]
`,
}
const CHECK_EACH = `
for n, attempt in enumerate(tries):
    try: attempt()
    except OSError: continue
    print('attempt', n, 'succeeded')
print('contained')
`

/** Outcome of opening a sandbox at one isolation level: opened, or why not. */
export interface LevelReport {
  readonly level: SandboxLevel
  readonly reached: boolean
  /** Reason for which the level was not reached. */
  readonly reason?: string
}

/**
 * Opens a sandbox at `options.level`, else at the highest level that this machine reaches.
 * @throws SandboxError sandbox.level_unmet (no allowed level is reached), sandbox.no_python (no usable interpreter),
 * sandbox.start_failed (a preload cannot be imported, or zygotes are killed as they start),
 * sandbox.unsupported_platform (not Linux), sandbox.bad_option (a number out of its bounds, a preload that is no
 * module's name, too many groups of preloads), sandbox.disk_full (no space for the sandbox's temporary directory)
 */
export async function openSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  checkBounds('sandbox.bad_option', options, OPTION_BOUNDS)
  if (process.platform !== 'linux') {
    throw new SandboxError('sandbox.unsupported_platform', {
      retriable: false,
      message: `the sandbox needs Linux, this is ${process.platform}`,
      hint: 'run it in a Linux container',
    })
  }
  const lowest = LEVELS.indexOf(options.requireLevel ?? 'none')
  const wanted = (options.level ? [options.level] : LEVELS).filter(level => LEVELS.indexOf(level) <= lowest)
  const why: string[] = []
  for (const level of wanted) {
    try {
      return await openAt(level, options)
    } catch (error) {
      if (!(error instanceof SandboxError) || error.code !== 'sandbox.level_unmet') throw error
      why.push(`${level}: ${error.message}`)
    }
  }
  const asked = options.requireLevel ?? options.level
  const unmet = asked === undefined ? 'no level is reached' : `level '${asked}' is required and not reached`
  const because = why.length > 0 ? why.join('; ') : `level '${options.level}' was asked for`
  throw new SandboxError('sandbox.level_unmet', {
    retriable: false,
    message: `${unmet} (${because})`,
    hint: '`troupe doctor` says why a level is not reached. In Docker, use the seccomp profile of the package (sandbox/seccomp.json). Or run this process in a virtual machine or container of its own, and accept a lower level (--require-level, requireLevel)',
  })
}

/** Tries every level and returns for each whether a sandbox could be opened, for `troupe doctor`. */
export async function probeLevels(options: SandboxOptions = {}): Promise<readonly LevelReport[]> {
  checkBounds('sandbox.bad_option', options, OPTION_BOUNDS)
  const reports: LevelReport[] = []
  for (const level of LEVELS) {
    try {
      const sandbox = await openAt(level, { ...options, lanes: 1 })
      await sandbox.close()
      reports.push({ level, reached: true })
    } catch (error) {
      reports.push({ level, reached: false, reason: (error as Error).message })
    }
  }
  return reports
}

async function openAt(level: SandboxLevel, options: SandboxOptions): Promise<Sandbox> {
  const base = temporaryDirectory('sandbox')
  try {
    const groups = preloadGroups(options)
    const interpreter = await findInterpreter(base, options.python, groups.flat())
    if (!options.lazyPreload && interpreter.missing.length > 0) throw notInstalled(interpreter)
    if (level === 'none' && !options.bare) return openProcessPool(options, interpreter, base)
    return await openZygotes(level, options, interpreter, base)
  } catch (error) {
    rmSync(base, { recursive: true, force: true })
    throw error
  }
}

let firstCore = 0
let zygotesMade = 0

async function openZygotes(
  level: SandboxLevel,
  options: SandboxOptions,
  interpreter: Interpreter,
  base: string,
): Promise<Sandbox> {
  const shim = options.noShim ? null : await compileShim()
  const count = options.zygotes ?? Math.min(availableParallelism(), options.lanes ?? Number.POSITIVE_INFINITY)
  const isThere = (module: string) => !interpreter.missing.includes(module.split('.')[0]!)
  const preloads = preloadGroups(options)
    .map(group => group.filter(isThere))
    .filter(group => group.length > 0)
  const zygotes = [[], ...preloads].map((_, kind) =>
    Array.from({ length: count }, (_, n) => {
      const modules = preloads.slice(0, kind).flat()
      return zygoteSetup(options.bare ? 'bare' : level, modules, interpreter, base, shim, firstCore + n)
    }),
  )
  // The next sandbox uses the next cores, so that several small sandboxes do not share the first core.
  firstCore += count
  const pool = new ZygotePool({
    level: options.bare ? 'none' : level,
    lanes: options.lanes ?? LANES_A_ZYGOTE * count,
    queueLimit: options.queueLimit ?? DEFAULT_QUEUE_LIMIT,
    sessionMemoryMb: options.sessionMemoryMb ?? SESSION_MEMORY_MB,
    budget: budgetOf(options),
    memoryWaitMs: options.memoryWaitMs ?? MEMORY_WAIT_MS,
    noSessions: whyNoSessions(options.bare ? 'none' : level, shim),
    workerFile: workerFile(base, 'zygote/worker'),
    zygotes,
    preloads,
    base,
  })
  const program = level === 'none' ? "print('contained')" : CHECK[level] + CHECK_EACH
  const check = { id: 'check', code: program, timeoutMs: CHECK_MS }
  const said = await retryLost(() => pool.run(check)).then(
    result => Buffer.from(result.stdout).toString() || Buffer.from(result.stderr).toString() || whyEnded(result),
    (error: Error) => error.message,
  )
  if (said !== 'contained\n') {
    await pool.close()
    throw whyNotOpened(said)
  }
  const fault = options.lazyPreload ? undefined : await pool.preloaded()
  if (fault === undefined) return pool
  await pool.close()
  throw fault.includes('preload of ') ? badPreload(interpreter, fault) : whyNotOpened(fault)
}

function whyNotOpened(said: string): SandboxError {
  // The error is start_failed, so that no lower level is tried: a signal from outside says nothing about what this
  // machine can isolate.
  if (said.includes('exited with SIGKILL')) {
    return new SandboxError('sandbox.start_failed', {
      retriable: true,
      message: `the zygotes (interpreters from which calls are forked) were killed while they started: ${said}`,
      hint: 'check whether the kernel kills processes for lack of memory (dmesg)',
    })
  }
  return new SandboxError('sandbox.level_unmet', { retriable: false, message: said.trim() })
}

const badPreload = ({ python, version }: Interpreter, fault: string) =>
  new SandboxError('sandbox.start_failed', {
    retriable: false,
    message: `${python} (Python ${version}): ${fault}`,
    hint: 'install what is missing for this interpreter, name an interpreter that has it, or leave the module out of the preloads',
  })

const notInstalled = (interpreter: Interpreter) =>
  badPreload(interpreter, `preload of ${interpreter.missing.join(', ')} failed: not installed`)

function budgetOf({ machineMemoryMb, memory }: SandboxOptions): MemoryBudget {
  if (machineMemoryMb === undefined && memory === undefined) return processBudget()
  const most = machineMemoryMb === undefined ? [] : [machineMemoryMb * 2 ** 20]
  return new MemoryBudget(memory ?? machineMemory(), ...most)
}

const whyEnded = ({ status, reason }: RunResult): string => reason ?? status

/** Returns the reason for which the sandbox has no sessions; undefined if it has them. */
function whyNoSessions(level: SandboxLevel, shim: string | null): string | undefined {
  if (level !== 'full') return `sessions need level 'full', this sandbox is at '${level}'`
  if (shim !== null) return undefined
  return 'sessions need the library built from sandbox/zygote/shim/shim.c: there is no C compiler, no folder for it can be written or all are mounted noexec, or noShim is set; install cc, gcc or clang, or name one in CC, or let TROUPE_HOME name a folder that allows programs, and open the sandbox again'
}

function zygoteSetup(
  level: SandboxLevel | 'bare',
  preload: readonly string[],
  { python, packages, readable }: Interpreter,
  base: string,
  shim: string | null,
  core: number,
): ZygoteSetup {
  return {
    python,
    args: ['-s', '-S', '-X', 'utf8', join(__dirname, 'zygote/zygote.py')],
    ping: controlFrame('ping'),
    env: {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      LANG: 'C.UTF-8',
      HOME: '/tmp',
      // With LD_BIND_NOW the zygote resolves its libraries' symbols at its start, so that no child has to. The zygote
      // removes the variable before it serves.
      LD_BIND_NOW: '1',
      TMPDIR: '/tmp',
      // A fixed hash seed makes sets print in the same order in every zygote.
      PYTHONHASHSEED: '0',
      PYTHONDONTWRITEBYTECODE: '1',
      // A library that starts a thread for each core would run into the limits and slow other calls.
      OMP_NUM_THREADS: '1',
      OPENBLAS_NUM_THREADS: '1',
      MKL_NUM_THREADS: '1',
    },
    settings: {
      level,
      shim,
      core,
      base,
      readable,
      packages: packages ? packages.split(':') : [],
      preload,
      uid: process.getuid?.() === 0 ? FIRST_UID + (zygotesMade++ % 1000) : 0,
      open_files: OPEN_FILES,
      threads: THREADS,
      tmp_mb: TMP_MB,
      tmp_mb_processes: TMP_MB_PROCESSES,
      runnable: RUNNABLE,
      longest: LONG,
      file_bytes: MAX_STREAM_BYTES,
    },
  }
}
