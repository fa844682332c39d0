/**
 * `troupe execute --join NAME`: an executor of a judge (`troupe judge --bus`), on this host or another one.
 *
 * in   submissions that the judge's front (the process with the HTTP API) puts on the bus
 * out  on stderr: when the executor is ready, and how it ended
 * Invariant: after the first signal it accepts no more calls and gives the running calls `--drain-ms` to end. If the
 * judge refuses the executor, the command fails with an error that says what differs.
 */
import { hostname } from 'node:os'
import type { Command } from 'commander'
import { environmentOf } from '../actors/tools/codeEnvironment'
import { JUDGE_NAME, joinJudge } from '../actors/tools/judge/joinJudge'
import { runId } from '../messages/ids'
import { systemEffects } from '../runtime/effects'
import { createLog } from '../runtime/log'
import { openSandbox, type SandboxLevel } from '../sandbox'
import { stopSignals } from './io/signals'
import { type CodeChoice, chosenCode, withCode } from './options/codeOptions'
import { kafkaBus } from './options/kafkaBus'
import { sandboxLevel, sandboxLevels, wholeNumber } from './options/readers'

interface Options extends CodeChoice {
  readonly bus: string
  readonly join: string
  readonly lanes?: number
  readonly requireLevel?: SandboxLevel
  readonly drainMs: number
}

export function registerExecute(program: Command): void {
  const command = program
    .command('execute')
    .description('run the submissions of a judge that was started with --bus, on this host')
    .requiredOption(
      '--bus <address>',
      'address of the bus: kafka://HOST:PORT[,…] (env TROUPE_BUS)',
      process.env.TROUPE_BUS,
    )
    .option(
      '--join <name>',
      'name of the judge (its --name); for the tools of a run use train RECIPE --role tools',
      JUDGE_NAME,
    )
    .option('--lanes <n>', 'number of sandbox lanes: calls that run at once', wholeNumber(1, 4096))
    .option(
      '--require-level <level>',
      `lowest accepted isolation level; the command fails below it: ${sandboxLevels.join(', ')}`,
      sandboxLevel,
    )
    .option('--drain-ms <ms>', 'time to end running calls after a signal', wholeNumber(0, 3_600_000), 60_000)
  withCode(command).action(async (options: Options) => {
    process.exitCode = await execute(options)
  })
}

async function execute({ bus: address, join, lanes, requireLevel, drainMs, ...code }: Options): Promise<number> {
  const bus = await kafkaBus(address)
  const signals = stopSignals()
  try {
    const sandbox = await openSandbox({
      ...chosenCode(code),
      ...(lanes === undefined ? {} : { lanes }),
      ...(requireLevel === undefined ? {} : { requireLevel }),
    })
    let fail: (error: Error) => void = () => {}
    const failed = new Promise<never>((_, reject) => {
      fail = reject
    })
    try {
      const executor = `${hostname().replaceAll(/[^A-Za-z0-9._-]/g, '-')}-${systemEffects.unique().slice(0, 8)}`
      const joined = await joinJudge({
        ...{ bus, name: runId(join), executor, sandbox, onFailed: fail, log: createLog('troupe') },
        environment: await environmentOf(code),
      })
      process.stderr.write(`execute: ${executor} joined '${join}', level ${sandbox.level}, ${sandbox.lanes} lanes\n`)
      try {
        await Promise.race([signals.stopped, failed])
      } catch (thrown) {
        await joined.leave().catch(() => {}) // the first error says why
        throw thrown
      }
      await joined.leave({ drainMs })
      return signals.exitCode()
    } finally {
      await sandbox.close()
    }
  } finally {
    signals.release()
    await bus.close()
  }
}
