/**
 * A real vLLM server on loopback, from the venv of `troupe setup vllm`.
 *
 * in   a model directory, how to start it        out  its address, and a process that can be killed
 * Invariant: it ends with this process, however that ends: a shell between them kills its whole group when its stdin closes.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const vllm = require('../../cli/setup/vllm') as {
  step(where: unknown): { readonly venv: string; isDone(): boolean }
}
const { places } = require('../../cli/setup/places') as { places(): unknown }

export interface VllmServerOptions {
  readonly modelDirectory: string
  readonly contextTokens: number
  readonly dtype?: 'float32' | 'bfloat16'
  /** Without it: no pause, no new weights. Default true. */
  readonly development?: boolean
  /** Without it: raw logprobs, first come first served, no count of cached tokens. Default true. */
  readonly forTraining?: boolean
  /** It loads adapters of at most this rank while it runs. */
  readonly adapterRank?: number
  readonly maxSequences?: number
  /** Of torch. Servers that are bound to cores, as they are by themselves, would share one. Default 2. */
  readonly threads?: number
  readonly flags?: readonly string[]
}

export interface VllmServer {
  readonly url: string
  readonly startedMs: number
  /** Of the venv that it runs in. */
  readonly python: string
  /** kill -9 of the server and of the engine's process behind it. */
  kill(): void
  log(): string
  stop(): Promise<void>
}

const startTimeoutMs = 300_000

export async function startVllm(options: VllmServerOptions): Promise<VllmServer> {
  const { venv, isDone } = vllm.step(places())
  if (!isDone()) throw new Error(`${venv} holds no vLLM: run npx troupe setup vllm`)
  const python = join(venv, 'bin/python')
  const port = await freePort()
  const root = mkdtempSync(join(tmpdir(), 'troupe-vllm-'))
  const logFile = join(root, 'server.log')
  const { modelDirectory, contextTokens, dtype = 'float32', development = true, forTraining = true } = options
  const fit = forTraining
    ? ['--scheduling-policy', 'priority', '--logprobs-mode', 'processed_logprobs', '--enable-prompt-tokens-details']
    : []
  const adapters =
    options.adapterRank === undefined
      ? []
      : ['--enable-lora', '--max-lora-rank', String(options.adapterRank), '--max-loras', '2']
  const args = [
    ...['-m', 'vllm.entrypoints.cli.main', 'serve', modelDirectory, '--host', '127.0.0.1', '--port', String(port)],
    ...['--enforce-eager', '--dtype', dtype, '--max-model-len', String(contextTokens)],
    ...['--max-num-seqs', String(options.maxSequences ?? 16), ...fit, ...adapters, ...(options.flags ?? [])],
  ]
  const env = {
    ...process.env,
    VLLM_TARGET_DEVICE: 'cpu',
    VLLM_CPU_KVCACHE_SPACE: '1',
    TORCHDYNAMO_DISABLE: '1',
    HF_HUB_OFFLINE: '1',
    VLLM_CPU_OMP_THREADS_BIND: 'nobind',
    OMP_NUM_THREADS: String(options.threads ?? 2),
    VLLM_NO_USAGE_STATS: '1',
    ...(development ? { VLLM_SERVER_DEV_MODE: '1' } : {}),
    ...(options.adapterRank === undefined ? {} : { VLLM_ALLOW_RUNTIME_LORA_UPDATING: '1' }),
  }
  const began = performance.now()
  // `set -m` gives the server a group of its own, and $! is that group's. A signal to the shell's group (Ctrl-C, timeout)
  // must not end the shell before it has ended the server.
  const script =
    'trap : HUP INT TERM; set -m; log=$1; shift; "$@" >"$log" 2>&1 & echo $!; read -r _; kill -9 -$! 2>/dev/null'
  const shell = spawn('bash', ['-c', script, 'bash', logFile, python, ...args], {
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const pid = await new Promise<number>(resolve => shell.stdout.once('data', chunk => resolve(Number(chunk))))
  const log = () => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : '')
  const stop = async () => {
    const ended = new Promise<void>(resolve =>
      shell.exitCode === null ? shell.once('exit', () => resolve()) : resolve(),
    )
    shell.stdin.end()
    await ended
    rmSync(root, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
  }
  const url = `http://127.0.0.1:${port}`
  while (!(await isUp(url))) {
    const late = performance.now() - began > startTimeoutMs
    if (late || !isAlive(pid)) {
      const said = log().slice(-3000)
      await stop()
      throw new Error(`a vLLM server ${late ? `did not start within ${startTimeoutMs} ms` : 'ended'}: ${said}`)
    }
    await new Promise(resolve => setTimeout(resolve, 200))
  }
  return { url, python, startedMs: performance.now() - began, kill: () => process.kill(-pid, 'SIGKILL'), log, stop }
}

const isUp = (url: string) =>
  fetch(`${url}/health`, { signal: AbortSignal.timeout(2000) }).then(
    reply => reply.status === 200,
    () => false,
  )

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await new Promise(resolve => server.close(resolve))
  return port
}
