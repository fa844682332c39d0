/**
 * Starts a real SGLang server on loopback, on this machine's CPU, from the venv of `troupe setup sglang`.
 *
 * in   a model directory, options of the server        out  the server's address, and a process that can be killed
 */
import { join } from 'node:path'
import { type ServerProcess, startServerProcess } from './serverProcess'

const sglang = require('../../cli/setup/sglang') as {
  step(where: unknown): { readonly venv: string; isDone(): boolean }
  readonly environment: Readonly<Record<string, string>>
  readonly flags: readonly string[]
}
const { places } = require('../../cli/setup/places') as { places(): unknown }

export interface SglangProcessOptions {
  readonly modelDirectory: string
  /** Value of --context-length; six of these tokens cannot be used by a request. */
  readonly contextTokens: number
  readonly kvTokens?: number
  readonly maxSequences?: number
  readonly flags?: readonly string[]
}

export async function startSglang(options: SglangProcessOptions): Promise<ServerProcess> {
  const { venv, isDone } = sglang.step(places())
  if (!isDone()) throw new Error(`${venv} holds no SGLang: run npx troupe setup sglang`)
  const { modelDirectory, contextTokens, kvTokens = 16_384, maxSequences = 16, flags = [] } = options
  const args = (port: number) => [
    ...['-m', 'sglang.launch_server', '--model-path', modelDirectory, '--host', '127.0.0.1', '--port', String(port)],
    ...[...sglang.flags, '--dtype', 'float32', '--context-length', String(contextTokens)],
    ...['--max-total-tokens', String(kvTokens), '--max-running-requests', String(maxSequences), ...flags],
  ]
  const env = { ...sglang.environment, HF_HUB_OFFLINE: '1', OMP_NUM_THREADS: '1' }
  return startServerProcess({ kind: 'SGLang', python: join(venv, 'bin/python'), args, env, upPath: '/ready' })
}
