/**
 * Compares the language-model head's log-probabilities, computed in chunks, with one dense matrix product of the same
 * size: hidden states times the head's weight, float32 on the CPU.
 *
 * Both ways alternate in one process. CPU time is compared, so that other work on the machine counts little. There is
 * one thread, since two would spin while they wait for each other. The first round of each way is not counted.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { pythonEnvironment, pythonPath } from '../runtime/python'
import { atMost, type BenchReport, describeMachine, median, printReport } from './report'

/** Models by name: width of the hidden states, vocabulary; tokens of a round. */
const shapes = {
  'SmolLM2-135M': [576, 49_152, 512],
  'Qwen2.5-0.5B': [896, 151_936, 256],
  'Qwen3-1.7B': [2048, 151_936, 128],
} as const
const rounds = 9
const deadlineMs = 600_000

interface Round {
  readonly dense: number
  readonly head: number
}

export async function bench(): Promise<BenchReport> {
  const env = pythonEnvironment({ OMP_NUM_THREADS: '1' })
  const measured: (readonly [string, readonly Round[], number])[] = []
  for (const [name, [width, vocabulary, tokens]] of Object.entries(shapes)) {
    const args = [join(__dirname, 'support/arms/headArm.py'), ...[width, vocabulary, tokens, rounds + 1].map(String)]
    const { stdout } = await promisify(execFile)(pythonPath(), args, { env, timeout: deadlineMs })
    measured.push([name, (JSON.parse(stdout) as Round[]).slice(1), tokens])
  }
  const ratio = (all: readonly Round[]) => median(all.map(({ dense, head }) => head / dense))
  return {
    bench: 'head',
    machine: describeMachine(),
    metrics: Object.fromEntries(
      measured.map(([name, all, tokens]) => [
        `${name}MsPerToken`,
        (1000 * median(all.map(({ head }) => head))) / tokens,
      ]),
    ),
    budgets: measured.map(([name, all]) =>
      atMost(`CPU time of ${name}'s head, times one dense product's`, ratio(all), 1.3),
    ),
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
