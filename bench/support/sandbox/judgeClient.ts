/**
 * A client of a judge (HTTP server that runs programs) that works like rStar2's: senders post batches, and wait for the
 * answer to each.
 *
 * in   a JudgeSetup      out  a connection; rates. A call of a batch whose output is not its program's is an error
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { processTree } from '../processTree'
import type { Rate } from './floors'
import type { JudgeSetup } from './judgeProcess'
import { codeOf, type Workload } from './programs'

export interface Result {
  readonly run_success: boolean
  readonly cost: number
  readonly stdout: string
  readonly stderr: string
  readonly reason: string
}

export interface JudgeClient {
  readonly process: ChildProcess
  post<T>(path: string, body: unknown): Promise<T>
  get<T>(path: string): Promise<T>
  close(): Promise<void>
}

const root = join(__dirname, '../../..')

/** Starts a judge and connects to it. */
export async function startJudge(setup: JudgeSetup): Promise<JudgeClient> {
  const child = fork(join(__dirname, 'judgeProcess.ts'), [JSON.stringify(setup)], {
    execArgv: ['-r', join(root, 'cli/register.js')],
  })
  const [{ url, error }] = (await once(child, 'message')) as [{ url?: string; error?: string }]
  if (url === undefined) throw new Error(`the judge did not start: ${error}`)
  const agent = new Agent({ keepAlive: true })
  const ask = <T>(method: 'GET' | 'POST', path: string, body?: unknown) =>
    new Promise<T>((resolve, reject) => {
      const asked = request(
        `${url}${path}`,
        { method, agent, headers: { 'content-type': 'application/json' } },
        answer => {
          const chunks: Buffer[] = []
          answer.on('data', (chunk: Buffer) => chunks.push(chunk))
          answer.once('error', reject)
          answer.once('end', () => {
            const text = Buffer.concat(chunks).toString()
            if (answer.statusCode === 200) resolve(JSON.parse(text) as T)
            else reject(new Error(`the judge answered ${path} with HTTP ${answer.statusCode}: ${text.slice(0, 300)}`))
          })
        },
      )
      asked.once('error', reject)
      asked.end(body === undefined ? undefined : JSON.stringify(body))
    })
  return {
    process: child,
    post: (path, body) => ask('POST', path, body),
    get: path => ask('GET', path),
    async close() {
      agent.destroy()
      const ended = once(child, 'exit')
      child.disconnect()
      await ended
    },
  }
}

/**
 * Posts one batch of calls, numbered from `first`. Throws if an answer is missing, wrong or belongs to another call.
 */
export async function postBatch(judge: JudgeClient, workload: Workload, first: number, size: number): Promise<void> {
  const numbers = Array.from({ length: size }, (_, i) => first + i)
  const submissions = numbers.map(n => ({ type: 'python', solution: codeOf(workload, n) }))
  const { results } = await judge.post<{ results: Result[] }>('/run/long-batch', { type: 'batch', submissions })
  if (results.length !== size) throw new Error(`the judge returned ${results.length} results for ${size} calls`)
  for (const [i, n] of numbers.entries()) {
    const { stdout, reason, stderr } = results[i]!
    if (stdout !== workload.prints(n)) {
      throw new Error(`call ${n} of ${workload.name} printed ${JSON.stringify(stdout)}, reason '${reason}': ${stderr}`)
    }
  }
}

export interface LoadShape {
  readonly senders: number
  readonly batch: number
  readonly seconds: number
}

let number = 1000

/**
 * Rate of calls when each sender posts its next batch after the answer to its last. The last answers count too; the
 * client's own CPU time does not.
 */
export async function batchRate(judge: JudgeClient, workload: Workload, shape: LoadShape): Promise<Rate> {
  const { senders, batch, seconds } = shape
  const cpuBefore = treeCpuMs(judge.process.pid!)
  const start = performance.now()
  let calls = 0
  const sender = async () => {
    while (performance.now() - start < seconds * 1000) {
      const first = number
      number += batch
      await postBatch(judge, workload, first, batch)
      calls += batch
    }
  }
  await Promise.all(Array.from({ length: senders }, sender))
  const perSecond = (1000 * calls) / (performance.now() - start)
  return { perSecond, cpuMs: (treeCpuMs(judge.process.pid!) - cpuBefore) / calls }
}

/** CPU milliseconds of a process and of all processes that it started, including ended ones that were waited for. */
export const treeCpuMs = (pid: number): number => processTree(pid).reduce((sum, use) => sum + use.cpuMs, 0)
