/**
 * `troupe gateway [RECIPE]`: serves OpenAI's and Anthropic's APIs to agents, and records every call in a run's log.
 *
 * stdout: with --json one line with the address; stderr: the address and how to look at what was recorded. An
 * existing run is continued: its sessions have the state that its log gives. Ends at a signal, or with an error when
 * its renderer process ends; running calls are recorded as failed.
 */
import { readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { recordRunStart, startOf } from '../../actors/run/runStart'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { mostOpenSessions, openGateway } from '../../gateway/openGateway'
import { collectedVersions } from '../../runtime/collectedVersions'
import { systemEffects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import { createLog } from '../../runtime/log'
import { openRun } from '../../runtime/openRun'
import { knowSecret } from '../../runtime/secrets/knownSecrets'
import { wrong } from '../chat/model'
import { stopSignals } from '../io/signals'
import { placeOptions, withBus } from '../options/busOptions'
import { numberFrom, wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { timestamp } from '../train/runName'
import { type GatewayModelOptions, gatewayConfig, gatewaySampling } from './config'
import { gatewayEngines } from './engines'
import { refuseTraining } from './refuseTraining'

interface GatewayCommandOptions extends GatewayModelOptions {
  readonly bus: string
  readonly run?: string
  readonly host: string
  readonly port: number
  readonly keyFile?: string
  readonly strictModel?: boolean
  readonly restoreThinking?: boolean
  readonly maxBodyMb: number
  readonly ttlHours: number
  readonly maxOpenSessions: number
  readonly json?: boolean
}

const fx = systemEffects

export function registerGateway(program: Command): void {
  const command = program
    .command('gateway [recipe]')
    .description("serve OpenAI's and Anthropic's APIs to any agent, and record every token of its calls")
    .option('--model <dir>', 'directory of a model that transformers can load')
    .option('--engine <address>', 'engine that answers: local, vllm:URL or sglang:URL')
    .option('--port <n>', 'port to listen on; 0 takes a free one', wholeNumber(0, 65_535), 8089)
    .option('--host <address>', 'address to listen on; any but loopback needs --key-file', '127.0.0.1')
    .option('--key-file <file>', 'file with the key that opens sessions')
    .option('--template <name>', "without a recipe: chat template hermes, own (the model's), or a Jinja file", 'hermes')
    .option(
      '--max-tokens <n>',
      'without a recipe: upper bound on the tokens of one answer (default: 2048)',
      wholeNumber(1, 2 ** 24),
    )
    .option('--temperature <t>', 'without a recipe: sampling temperature (default: 1)', numberFrom(0))
    .option(
      '--restore-thinking',
      'if an agent sends back an answer without its thinking, continue the sampled tokens; default: begin a branch',
    )
    .option('--strict-model', "refuse calls that name another model than the engine's")
    .option('--max-body-mb <n>', 'upper bound on the body of a request, in MiB', wholeNumber(1, 1024), 32)
    .option('--ttl-hours <n>', 'hours after which a session ends by itself', wholeNumber(1, 720), 24)
    .option(
      '--max-open-sessions <n>',
      'without a key: upper bound on sessions that have not ended and had a call within an hour',
      wholeNumber(1, 2 ** 24),
      mostOpenSessions,
    )
    .option('--set <path=value>', 'override a field of the recipe (repeatable)', repeatable, [])
    .option('--json', 'print one JSON line with the address and the run')
    .option('--run <id>', 'name of the run; a run that exists is continued (default: gateway and time)')
  withBus(command).action(async (recipe: string | undefined, options: GatewayCommandOptions) => {
    process.exitCode = await serve(recipe, options)
  })
}

async function serve(recipe: string | undefined, options: GatewayCommandOptions): Promise<number> {
  const config = await gatewayConfig(recipe, options)
  if (config.model.from !== 'directory') throw wrong('a gateway needs a model in a directory', 'give --model DIR')
  const { path: modelDirectory, template } = config.model
  const key = options.keyFile === undefined ? undefined : keyIn(options.keyFile)
  const run = options.run ?? `gateway-${timestamp()}`
  const log = createLog('gateway', { level: process.env.TROUPE_LOG ?? 'warn' })
  const signals = stopSignals()
  const closers: (() => Promise<unknown>)[] = []
  try {
    const context = await openRun(options.bus, run, 'write')
    closers.push(() => context.bus.close())
    const { journal } = context
    await journal.create(1)
    await refuseTraining(journal, run)
    const renderer = await startRenderer({ modelDirectory, ...(template === undefined ? {} : { template }), log })
    closers.push(() => renderer.close())
    const resume = (await startOf(journal)) !== undefined
    const { digest: tokenizerDigest } = await renderer.describe()
    const start = { run: context.run, config, resume, acceptCode: true, partitions: 1, tokenizerDigest }
    await recordRunStart(journal, { ...start, versions: collectedVersions(), fx, log })
    const planned = gatewayEngines(config, modelDirectory, log)
    closers.push(() => planned.close())
    const gateway = await openGateway({
      ...{ journal, renderer, fx, log, engines: planned.engines, host: options.host, port: options.port },
      ...(key === undefined ? {} : { key }),
      ...{ seed: config.seed, limits: config.limits, sampling: gatewaySampling(recipe, config) },
      strictModel: options.strictModel === true,
      strippedThinking: options.restoreThinking === true ? 'restore' : 'branch',
      mostOpen: options.maxOpenSessions,
      ...{ ttlMs: options.ttlHours * 3_600_000, maxBodyBytes: options.maxBodyMb * 1024 * 1024 },
    })
    closers.push(() => gateway.close())
    announce(gateway.url, run, resume, options)
    const lost = await Promise.race([signals.stopped.then(() => undefined), renderer.lost])
    if (lost !== undefined) throw lost
    await gateway.close()
    await journal.append([
      {
        type: 'run.finished',
        at: fx.now(),
        run: context.run,
        outcome: 'done',
        reason: 'the gateway was stopped',
        steps: 0,
        summary: {},
      },
    ])
    return signals.exitCode()
  } finally {
    for (const close of closers.reverse())
      await close().catch(thrown => log.warn({ err: asError(thrown) }, 'not closed cleanly'))
    signals.release()
  }
}

function announce(url: string, run: string, resume: boolean, options: GatewayCommandOptions): void {
  if (options.json) process.stdout.write(`${JSON.stringify({ type: 'gateway', url, run, resumed: resume })}\n`)
  const key = options.keyFile === undefined ? 'any-text' : "a session's key"
  const lines = [
    `gateway ${url}, run ${run}${resume ? ' (continued)' : ''}`,
    `  OPENAI_BASE_URL=${url}/v1  OPENAI_API_KEY=${key}`,
    `  ANTHROPIC_BASE_URL=${url}  ANTHROPIC_API_KEY=${key}`,
    `look at a session  npx troupe replay ls --run ${run}${placeOptions(options)}`,
  ]
  process.stderr.write(`${lines.join('\n')}\n`)
}

function keyIn(file: string): string {
  let text: string
  try {
    text = readFileSync(file, 'utf8').trim()
  } catch (thrown) {
    throw wrong(`--key-file ${file} cannot be read: ${asError(thrown).message}`, 'give a file with the key')
  }
  if (text.length < 16)
    throw wrong(`the key in ${file} has ${text.length} characters; expected at least 16`, 'use a longer key')
  return knowSecret(text)
}
