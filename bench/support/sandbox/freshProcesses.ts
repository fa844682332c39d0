/**
 * The baseline of the sandbox: workers that start a fresh interpreter for every call (freshWorker.py), one call at a
 * time each, behind the interface of the sandbox and so behind the same HTTP server.
 *
 * in   requests      out  results; only the limits that Code Judge has are applied, and nothing is isolated
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { RunRequest, RunResult, Sandbox } from '../../../sandbox'

interface Answer {
  readonly exitCode: number
  readonly timedOut: boolean
  readonly wallMs: number
  readonly stdout: string
  readonly stderr: string
}

interface Worker {
  readonly process: ChildProcess
  answer: (answer: Answer) => void
}

export function freshProcesses(workers: number, python: string): Sandbox {
  const free: Worker[] = []
  const waiting: ((worker: Worker) => void)[] = []
  const all = Array.from({ length: workers }, () => {
    const child = spawn(python, [join(__dirname, 'freshWorker.py')], { stdio: ['pipe', 'pipe', 'inherit'] })
    const worker: Worker = { process: child, answer: () => undefined }
    createInterface({ input: child.stdout }).on('line', line => worker.answer(JSON.parse(line) as Answer))
    free.push(worker)
    return worker
  })
  const turn = () => {
    const worker = free.pop()
    return worker ? Promise.resolve(worker) : new Promise<Worker>(resolve => waiting.push(resolve))
  }
  return {
    level: 'none',
    lanes: workers,
    async run({ id, code, stdin = '', timeoutMs = 4000, memoryMb = 384 }: RunRequest): Promise<RunResult> {
      const worker = await turn()
      const call = { id, code, stdin, timeoutMs, memoryBytes: memoryMb * 1024 * 1024 }
      const answered = new Promise<Answer>(resolve => {
        worker.answer = resolve
      })
      worker.process.stdin!.write(`${JSON.stringify(call)}\n`)
      const answer = await answered
      const next = waiting.shift()
      if (next) next(worker)
      else free.push(worker)
      return resultOf(id, answer)
    },
    async close() {
      for (const worker of all) worker.process.stdin!.end()
    },
  }
}

function resultOf(id: string, { exitCode, timedOut, wallMs, ...streams }: Answer): RunResult {
  const stdout = Buffer.from(streams.stdout)
  const stderr = Buffer.from(streams.stderr)
  const status = timedOut ? 'timeout' : exitCode === 0 ? 'ok' : 'error'
  const sizes = { stdout, stderr, stdoutBytes: stdout.length, stderrBytes: stderr.length }
  return { id, status, exitCode, signal: null, wallMs, cpuMs: 0, maxRssBytes: 0, ...sizes }
}
