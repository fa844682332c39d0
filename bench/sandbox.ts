/**
 * Compares the sandbox with the cost of processes on this machine, and with workers built like Code Judge's, side by
 * side.
 *
 * Parts: the rates of four workloads (trivial, wrapper, numpy, sympy) over HTTP, as a library, and of their floors; the
 * same four through one judge in its default configuration (`default`); a mixed load with spinners (`mixed`); a
 * burst of 45,000 calls; latency at 70 % load; 5 % of calls that spin; CPU-second calls at half load; timeouts;
 * sleepers; memory; 2,000 sessions. Each part prints its budgets. `--only PART,…` runs some of them. The load generator
 * runs on the measured cores too.
 */
import { pythonPath } from '../runtime/python'
import { type BenchReport, describeMachine, printReport } from './report'
import { memory, sleepers, timeouts } from './support/sandbox/lanes'
import { sessions } from './support/sandbox/manySessions'
import { mixedRates } from './support/sandbox/mixed'
import { oneJudgeRates, type Part, trivialRates, workloadRates } from './support/sandbox/rates'
import { burst, latency, spinners, starvation } from './support/sandbox/service'

const parts: Readonly<Record<string, (python: string) => Promise<Part>>> = {
  trivial: trivialRates,
  wrapper: python => workloadRates('wrapper', python),
  numpy: python => workloadRates('numpy', python),
  sympy: python => workloadRates('sympy', python),
  default: oneJudgeRates,
  mixed: mixedRates,
  burst,
  latency,
  spinners,
  starvation,
  timeouts,
  sleepers,
  memory,
  sessions,
}

export async function bench({
  only = Object.keys(parts),
}: {
  readonly only?: readonly string[]
} = {}): Promise<BenchReport> {
  const unknown = only.find(name => !Object.hasOwn(parts, name))
  if (unknown !== undefined)
    throw new Error(`the benchmark sandbox has no part '${unknown}'; its parts: ${Object.keys(parts).join(', ')}`)
  // All parts use one interpreter, the virtual environment's, which has numpy and sympy and starts as fast as a plain
  // one.
  const python = pythonPath()
  const measured: Part[] = []
  for (const name of only) {
    process.stderr.write(`sandbox: ${name}\n`)
    measured.push(await parts[name]!(python))
  }
  return {
    bench: 'sandbox',
    machine: describeMachine(),
    metrics: Object.assign({}, ...measured.map(part => part.metrics)) as Record<string, number>,
    budgets: measured.flatMap(part => part.budgets),
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
