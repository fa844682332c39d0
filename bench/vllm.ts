/**
 * Benchmarks that need a real vLLM server, on this machine's CPU with SmolLM2: run `troupe setup vllm` and `troupe
 * setup smollm2` first.
 *
 * - rollout: Troupe against a bare asyncio client that makes the same requests of the same server.
 * - preemptions: kv-headroom against static, with least-requests beside, when the KV cache is too small for all
 *   contexts.
 * - prediction: a simulation calibrated on one recorded load, compared with three others.
 */
import { atLeast, atMost, type BenchReport, type Budget, describeMachine, printReport } from './report'
import { policyRace, policyServer } from './support/vllm/policyRace'
import { predictions } from './support/vllm/prediction'
import { rolloutRace, rolloutServer } from './support/vllm/rolloutRace'
import { type BenchServer, type BenchServerOptions, serverDtype, startBenchServer } from './support/vllm/server'

type Part = () => Promise<Pick<BenchReport, 'metrics' | 'budgets'>>

const parts: Readonly<Record<string, Part>> = {
  async rollout() {
    const { metrics, share } = await withServer(rolloutServer, rolloutRace)
    return { metrics, budgets: [atLeast('rollout: tokens/s, share of the bare client', share, 0.95)] }
  },

  async preemptions() {
    const { metrics, fewerPreemptions, speedUp } = await withServer(policyServer, policyRace)
    return {
      metrics,
      budgets: [
        atLeast('preemptions: static over kv-headroom', fewerPreemptions, 10),
        atLeast('preemptions: tokens/s, kv-headroom over static', speedUp, 1),
      ],
    }
  },

  async prediction() {
    const metrics: Record<string, number> = {}
    const budgets: Budget[] = []
    for (const one of await predictions()) {
      const makespan = one.makespanMs / one.recordedMakespanMs - 1
      const firstToken = one.ttftMsMean / one.recordedTtftMsMean - 1
      const { load, recordedMakespanMs, recordedTtftMsMean, recordedPreemptions, preemptions } = one
      metrics[`prediction.${load}.makespanSeconds`] = recordedMakespanMs / 1000
      metrics[`prediction.${load}.makespanError`] = makespan
      metrics[`prediction.${load}.firstTokenMs`] = recordedTtftMsMean
      metrics[`prediction.${load}.firstTokenError`] = firstToken
      metrics[`prediction.${load}.preemptions`] = recordedPreemptions
      metrics[`prediction.${load}.simulatedPreemptions`] = preemptions
      if (load === 'recorded') continue
      budgets.push(atMost(`${load}: makespan, share off`, Math.abs(makespan), 0.1))
      budgets.push(atMost(`${load}: mean time to the first token, share off`, Math.abs(firstToken), 0.2))
    }
    return { metrics, budgets }
  },
}

async function withServer<T>(options: BenchServerOptions, use: (server: BenchServer) => Promise<T>): Promise<T> {
  const server = await startBenchServer(options)
  return use(server).finally(() => server.stop())
}

export async function bench({ only }: { readonly only?: readonly string[] } = {}): Promise<BenchReport> {
  const names = Object.keys(parts)
  const unknown = only?.find(name => !names.includes(name))
  if (unknown !== undefined)
    throw new Error(`the benchmark vllm has no part '${unknown}'; its parts: ${names.join(', ')}`)
  const metrics: Record<string, number> = {}
  const budgets: Budget[] = []
  for (const name of only ?? names) {
    const report = await parts[name]!()
    Object.assign(metrics, report.metrics)
    budgets.push(...report.budgets)
  }
  return { bench: 'vllm', machine: `${describeMachine()}, vLLM in ${serverDtype}`, metrics, budgets }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
