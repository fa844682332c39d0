/**
 * Runs the quickstart as a user does and compares it with its promises: time, learning curve, tool errors, memory.
 *
 * in   `troupe train quickstart --json` on its own log        out  its figures, and its CPU time by part
 * Set-up has been done before. Memory is that of the whole process tree, sampled every second.
 */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { summaryOf } from '../replay/learning/progress'
import { endedHow } from '../runtime/errors'
import { atLeast, atMost, type BenchReport, describeMachine, printReport } from './report'
import { processTree, pssBytes } from './support/processTree'

/** Last line that `train --json` prints: the summary of the run. */
type Summary = ReturnType<typeof summaryOf> & {
  readonly cpuSeconds: Readonly<Record<string, number>>
}

const bin = join(__dirname, '../cli/bin.js')
const sampleEveryMs = 1000
/**
 * Minimum factor by which the rate of failed tool calls in rollouts with a positive reward must fall from the first
 * step to the last.
 */
const errorsFallBy = 5

interface Trained {
  readonly summary: Summary
  readonly peakBytes: number
}

async function train(directory: string): Promise<Trained> {
  const child = spawn(process.execPath, [bin, 'train', 'quickstart', '--json', '--bus', `lmdb:${directory}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { TROUPE_LOG: 'warn', ...process.env },
  })
  const ended = new Promise<string>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve(endedHow(code, signal)))
  })
  let peakBytes = 0
  const sampling = setInterval(() => {
    const tree = processTree(child.pid!)
    peakBytes = Math.max(
      peakBytes,
      tree.reduce((sum, { pid }) => sum + pssBytes(pid), 0),
    )
  }, sampleEveryMs)
  try {
    let summary: Summary | undefined
    for await (const line of createInterface({ input: child.stdout })) {
      const report = JSON.parse(line) as { readonly type: string }
      if (report.type === 'summary') summary = report as Summary
    }
    const how = await ended
    if (summary === undefined) throw new Error(`troupe train quickstart ${how} and printed no summary`)
    return { summary, peakBytes }
  } finally {
    clearInterval(sampling)
    child.kill()
  }
}

export async function bench(): Promise<BenchReport> {
  const directory = mkdtempSync(join(process.env.TROUPE_BENCH_DIR ?? tmpdir(), 'troupe-bench-quickstart-'))
  try {
    return reportOf(await train(directory))
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Builds the report. A value that the summary lacks, because the run ended early, becomes NaN and meets no budget. */
export function reportOf({ summary, peakBytes }: Trained): BenchReport {
  const { evalBefore, evalAfter, toolErrorsInPositives, wallSeconds, cpuSeconds, steps } = summary
  const first = toolErrorsInPositives.first ?? Number.NaN
  const last = toolErrorsInPositives.last ?? Number.NaN
  const total = Object.values(cpuSeconds).reduce((a, b) => a + b, 0)
  const cpu = Object.entries(cpuSeconds).flatMap(([part, seconds]) => [
    [`cpuSeconds.${part}`, seconds] as const,
    [`cpuShare.${part}`, seconds / total] as const,
  ])
  return {
    bench: 'quickstart',
    machine: describeMachine(),
    metrics: {
      steps,
      passAt1BeforeStandardError: evalBefore?.standardError ?? Number.NaN,
      passAt1AfterStandardError: evalAfter?.standardError ?? Number.NaN,
      toolErrorsInPositivesFirst: first,
      toolErrorsInPositivesLast: last,
      ...Object.fromEntries(cpu),
    },
    budgets: [
      atMost('wall time, seconds', wallSeconds, 300),
      atMost('pass@1 before', evalBefore?.passAt1 ?? Number.NaN, 0.5),
      atLeast('pass@1 after', evalAfter?.passAt1 ?? Number.NaN, 0.9),
      atLeast('problems not trained on', evalAfter?.n ?? Number.NaN, 256),
      // The ratio of the error rates is last / first, so that a last rate of 0 still gives a number.
      atMost('tool errors in positives, last over first', last / first, 1 / errorsFallBy),
      atMost('peak memory, GB', peakBytes / 1e9, 3),
    ],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
