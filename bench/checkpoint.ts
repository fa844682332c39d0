/**
 * Measures for how long a checkpoint blocks the trainer: the weights and moments of 135M parameters are written while
 * the next step is trained, on the CPU.
 *
 * Blocked is the time for which the thread that trains waits: in the call that begins the checkpoint, and before the
 * update for the rest of the copy to the host's memory (support/arms/checkpointArm.py). Publishing the weights comes
 * before and is not part of it.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { pythonEnvironment, pythonPath } from '../runtime/python'
import { atLeast, atMost, type BenchReport, describeMachine, median, printReport } from './report'

const rounds = 3
const tokens = 512
const threads = 2
const deadlineMs = 900_000

/** Seconds of one round, as support/arms/checkpointArm.py measures them. */
interface Round {
  readonly plain: number
  readonly publish: number
  readonly begin: number
  readonly waited: number
  readonly beside: number
  readonly copied: number
  readonly written: number
  readonly bytes: number
}

export async function bench(): Promise<BenchReport> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-checkpoint-bench-'))
  try {
    const env = pythonEnvironment({ OMP_NUM_THREADS: String(threads), HF_HUB_OFFLINE: '1' })
    const options = { directory, rounds, tokens, threads }
    const args = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)])
    const script = join(__dirname, 'support/arms/checkpointArm.py')
    const { stdout } = await promisify(execFile)(pythonPath(), [script, ...args], { env, timeout: deadlineMs })
    return reportOf(
      stdout
        .trim()
        .split('\n')
        .map(line => JSON.parse(line) as Round),
    )
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

function reportOf(all: readonly Round[]): BenchReport {
  const middle = (of: (round: Round) => number) => median(all.map(of))
  return {
    bench: 'checkpoint',
    machine: describeMachine(),
    metrics: {
      'checkpoint, MB': middle(({ bytes }) => bytes / 1e6),
      'publication of the weights, seconds': middle(one => one.publish),
      'copied to the host, seconds after the start': middle(one => one.copied),
      'on disk, seconds after the start': middle(one => one.written),
      'step without a checkpoint, seconds': middle(one => one.plain),
      'step beside a checkpoint, seconds': middle(one => one.beside),
    },
    budgets: [
      atMost(
        'blocked by a checkpoint of 135M parameters, seconds',
        Math.max(...all.map(one => one.begin + one.waited)),
        0.5,
      ),
      atLeast('checkpoint, MB', Math.min(...all.map(({ bytes }) => bytes / 1e6)), 1600),
    ],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
