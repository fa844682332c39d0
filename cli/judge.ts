/**
 * `troupe judge`: serves the HTTP API of Code Judge (a service that runs and judges programs) over the sandbox until a
 * signal ends it. With `--bus` it is the judge's front, which runs nothing itself: executors that `troupe execute`
 * joined on any host run the submissions; an error of the front on the bus then ends it too.
 *
 * in   HTTP requests      out  on stderr: the server's address, and how it ended
 * Invariant: after the first signal no request is accepted, and open requests are answered for at most `--drain-ms`;
 * the second signal ends open requests at once, with an answer that says so.
 */
import type { Command } from 'commander'
import { JUDGE_NAME, openFront } from '../actors/tools/judge/joinJudge'
import { runId } from '../messages/ids'
import { TroupeError } from '../runtime/errors'
import { createLog } from '../runtime/log'
import {
  JUDGE_BOUNDS,
  JUDGE_DEFAULTS,
  type JudgeOptions,
  openJudge,
  openSandbox,
  SandboxError,
  type SandboxLevel,
  type SandboxOptions,
} from '../sandbox'
import { MATH_MODULE } from '../sandbox/judge/mathProgram'
import { onNpxEnd } from './io/npxParent'
import { type CodeChoice, chosenCode, withCode } from './options/codeOptions'
import { kafkaBus } from './options/kafkaBus'
import { sandboxLevel, sandboxLevels, wholeNumber } from './options/readers'

interface Options extends CodeChoice {
  readonly bus?: string
  readonly name: string
  readonly port: number
  readonly host: string
  readonly tokenFile?: string
  readonly lanes?: number
  readonly requireLevel?: SandboxLevel
  readonly timeoutMs: number
  readonly memoryMb: number
  readonly maxOutputChars: number
  readonly queueWaitMs: number
  readonly longQueueWaitMs: number
  readonly maxQueuedCalls: number
  readonly maxClientCalls: number
  readonly maxBodyMb: number
  readonly maxHeldMb: number
  readonly drainMs: number
  readonly maxConnections?: number
  readonly allowHost?: readonly string[]
  readonly math?: boolean
}

const MIB = 1024 * 1024
const defaults = JUDGE_DEFAULTS
const bounds = JUDGE_BOUNDS

/**
 * Adds the command to the program. Its action sets `process.exitCode` to the code of the signal that ended the server.
 */
export function registerJudge(program: Command): void {
  const mib = ([, most]: readonly [number, number]) => wholeNumber(1, Math.floor(most / MIB))
  const command = program
    .command('judge')
    .description("serve Code Judge's HTTP API over the sandbox: /ping /status /run /judge, with /batch and /long-batch")
    .option('--port <n>', 'port to listen on; 0 takes a free one', wholeNumber(...bounds.port), defaults.port)
    .option('--host <address>', 'address to listen on; any but loopback needs --token-file', defaults.host)
    .option('--token-file <file>', 'file with the bearer token that requests must carry')
    .option(
      '--allow-host <name...>',
      'names that requests may have in their Host header, besides localhost and 127.0.0.1',
    )
    .option('--bus <address>', 'kafka://HOST:PORT[,…]: executors that join there (troupe execute) run the submissions')
    .option('--name <name>', 'name of the judge on the bus, which its executors join', JUDGE_NAME)
    .option('--lanes <n>', 'number of sandbox lanes: calls that run at once', wholeNumber(1, 4096))
    .option(
      '--require-level <level>',
      `lowest accepted isolation level; the command fails below it: ${sandboxLevels.join(', ')}`,
      sandboxLevel,
    )
    .option('--math', 'answer submissions of type math: math-verify compares solution and expected_output')
    .option('--timeout-ms <ms>', 'deadline of one program run', wholeNumber(...bounds.timeoutMs), defaults.timeoutMs)
    .option(
      '--memory-mb <n>',
      'address space of one program run; C++ gets two thirds of it, as in Code Judge',
      wholeNumber(...bounds.memoryMb),
      defaults.memoryMb,
    )
    .option(
      '--max-output-chars <n>',
      'upper bound on the characters of stdout, and of stderr, in an answer',
      wholeNumber(...bounds.maxOutputChars),
      defaults.maxOutputChars,
    )
    .option(
      '--queue-wait-ms <ms>',
      'how long a call may wait for a free sandbox lane',
      wholeNumber(...bounds.queueWaitMs),
      defaults.queueWaitMs,
    )
    .option(
      '--long-queue-wait-ms <ms>',
      'how long a call of /long-batch may wait for a free sandbox lane',
      wholeNumber(...bounds.longQueueWaitMs),
      defaults.longQueueWaitMs,
    )
    .option(
      '--max-queued-calls <n>',
      'upper bound on the calls of all clients that wait for a sandbox lane; a request beyond it gets 503',
      wholeNumber(...bounds.maxQueuedCalls),
      defaults.maxQueuedCalls,
    )
    .option(
      '--max-client-calls <n>',
      'upper bound on the calls of one client address that wait for a lane',
      wholeNumber(...bounds.maxClientCalls),
      defaults.maxClientCalls,
    )
    .option(
      '--max-body-mb <n>',
      'upper bound on a request body, in MiB',
      mib(bounds.maxBodyBytes),
      defaults.maxBodyBytes / MIB,
    )
    .option(
      '--max-held-mb <n>',
      'upper bound on the bodies of all open requests together, in MiB',
      mib(bounds.maxHeldBytes),
      defaults.maxHeldBytes / MIB,
    )
    .option(
      '--max-connections <n>',
      'upper bound on the open connections (default: half the descriptors of this process, at most 8192)',
      wholeNumber(...bounds.maxConnections),
    )
    .option('--drain-ms <ms>', 'time to answer open requests after a signal', wholeNumber(0, 3_600_000), 60_000)
  withCode(command).action(async (options: Options) => {
    process.exitCode = options.bus === undefined ? await judgeHere(options) : await judgeFront(options, options.bus)
  })
}

async function judgeHere(options: Options): Promise<number> {
  const sandbox = await openSandbox(sandboxOptions(options))
  try {
    const judge = await openJudge(sandbox, judgeOptions(options)).catch(wrongUsage)
    process.stderr.write(`judge: ${judge.url}, sandbox level ${sandbox.level}, ${sandbox.lanes} lanes\n`)
    return await untilSignal(ms => judge.close(ms), options.drainMs)
  } finally {
    await sandbox.close()
  }
}

async function judgeFront(options: Options, address: string): Promise<number> {
  for (const name of ['lanes', 'requireLevel', 'python', 'packages', 'preload'] as const)
    if (options[name] !== undefined) throw ofExecutors(name)
  const bus = await kafkaBus(address)
  try {
    let fail: (error: Error) => void = () => {}
    const failed = new Promise<never>((_, reject) => {
      fail = reject
    })
    failed.catch(() => {}) // a rejection before the races below counts as handled
    const name = runId(options.name)
    const onStandingBy = () => void process.stderr.write(`judge: another front of '${name}' is open: standing by\n`)
    const front = openFront({ bus, name, onFailed: fail, onStandingBy, log: createLog('troupe') })
    const sandbox = await Promise.race([front, failed])
    try {
      if (options.math) process.stderr.write('judge: waiting for an executor, to try math-verify\n')
      const judge = await Promise.race([openJudge(sandbox, judgeOptions(options)), failed]).catch(wrongUsage)
      process.stderr.write(`judge: ${judge.url}, over ${address}; troupe execute --bus ${address} --join ${name}\n`)
      return await Promise.race([untilSignal(ms => judge.close(ms), options.drainMs), failed])
    } finally {
      await sandbox.close()
    }
  } finally {
    await bus.close()
  }
}

const ofExecutors = (name: string) =>
  new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: `--${name.replace(/[A-Z]/g, c => `-${c.toLowerCase()}`)} cannot be used with --bus, because the executors run the code`,
    hint: 'give the option to troupe execute',
  })

function sandboxOptions({ lanes, requireLevel, math, ...options }: Options): SandboxOptions {
  const code = chosenCode(options)
  return {
    ...code,
    ...(math ? { preload: [...(code.preload ?? []), MATH_MODULE] } : {}),
    ...(lanes ? { lanes } : {}),
    ...(requireLevel ? { requireLevel } : {}),
  }
}

function judgeOptions(options: Options): JudgeOptions {
  const { port, host, tokenFile, timeoutMs, memoryMb, maxOutputChars, queueWaitMs, longQueueWaitMs } = options
  return {
    ...{ port, host, timeoutMs, memoryMb, maxOutputChars, queueWaitMs, longQueueWaitMs },
    ...(tokenFile === undefined ? {} : { tokenFile }),
    cppMemoryMb: Math.ceil((2 * memoryMb) / 3),
    math: options.math === true,
    maxQueuedCalls: options.maxQueuedCalls,
    maxClientCalls: options.maxClientCalls,
    maxBodyBytes: options.maxBodyMb * MIB,
    maxHeldBytes: options.maxHeldMb * MIB,
    ...(options.maxConnections === undefined ? {} : { maxConnections: options.maxConnections }),
    ...(options.allowHost === undefined ? {} : { allowedHosts: options.allowHost }),
  }
}

/** Closes the server at a signal. Resolves with the exit code of the first signal. */
function untilSignal(close: (drainMs: number) => Promise<void>, drainMs: number): Promise<number> {
  return new Promise(resolve => {
    let code = 0
    const onSignal = (signal: NodeJS.Signals) => {
      const first = code === 0
      if (first) code = signal === 'SIGINT' ? 130 : 143
      process.stderr.write(
        first
          ? `judge: ${signal}: answering open requests; a second signal ends them at once\n`
          : `judge: ${signal} again\n`,
      )
      void close(first ? drainMs : 0).then(() => {
        process.off('SIGINT', onSignal).off('SIGTERM', onSignal)
        stopWatching()
        resolve(code)
      })
    }
    process.on('SIGINT', onSignal).on('SIGTERM', onSignal)
    const stopWatching = onNpxEnd(() => code === 0 && onSignal('SIGTERM'))
  })
}

/**
 * Turns a judge's SandboxError (`judge.…`) into a TroupeError of the same code and the boundary `cli`, which ends with
 * exit code 2.
 */
function wrongUsage(error: unknown): never {
  if (!(error instanceof SandboxError) || !error.code.startsWith('judge.')) throw error
  const { retriable, message, hint } = error
  throw new TroupeError(error.code, { boundary: 'cli', retriable, message, ...(hint ? { hint } : {}), cause: error })
}
