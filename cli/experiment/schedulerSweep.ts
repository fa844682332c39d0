/**
 * Experiment scheduler-sweep: simulates the scheduling policies on loads from scarce to plentiful KV cache.
 *
 * in   the loads of kernels/simulator/loads.ts
 * out  each policy's makespan, beside that of least-requests and a lower bound; its share of recomputed tokens
 */
import { lowerBoundMs, type PolicyName, policies, type SimulationResult, simulate, sweepLoads } from '../../kernels'
import type { Experiment } from './experiment'
import { shown } from './report'

const engines = 8
const names = Object.keys(policies) as PolicyName[]

interface Swept {
  readonly name: string
  readonly bound: number
  readonly made: Readonly<Record<PolicyName, SimulationResult>>
}

export const schedulerSweep: Experiment = async ({ say }) => {
  const results: Swept[] = []
  for (const { name, trace, model, engines: count } of sweepLoads(engines)) {
    const made = Object.fromEntries(
      names.map(policy => [policy, simulate(trace, { model, engines: count, policy })]),
    ) as Swept['made']
    const bound = lowerBoundMs(trace, model, count).ms
    results.push({ name, bound, made })
    say(name)
  }
  const over = (policy: PolicyName) =>
    results.map(({ made }) => made[policy].makespanMs / made['least-requests'].makespanMs)
  const recomputed = (policy: PolicyName) =>
    results.map(({ made }) => made[policy].recomputedTokens / made[policy].generatedTokens)
  const others = names.filter(n => n !== 'kv-headroom')
  const best = results.map(({ made }) => Math.min(...others.map(n => made[n].makespanMs)))
  const twins = others.filter(a =>
    others.some(b => a !== b && results.every(({ made }) => made[a].makespanMs === made[b].makespanMs)),
  )
  const worst = Math.max(...results.map(({ made }, at) => made['kv-headroom'].makespanMs / best[at]!))
  return {
    name: 'scheduler-sweep',
    title: 'Dispatch by KV-cache headroom, over loads',
    question:
      'The paper dispatches rollouts by free KV cache instead of static shares (§3.2) and gives no figure. What does it gain, and on which loads is it slower?',
    method: [
      `${results.length} loads on ${engines} engines of 256 trajectories each: KV cache × spread of lengths × tool latency × turns (kernels/simulator/loads.ts); the engine is a Qwen3-14B on an H100.`,
      "All policies run the same trace. Preemption, recompute and prefix sharing are vLLM's rules. Nothing here is measured on a GPU.",
      'kv-headroom was tuned on the base load and on these loads (kernels/simulator/loads.ts): on other loads it may gain less.',
      ...(twins.length === 0
        ? []
        : [
            `In every load ${twins.join(' and ')} take the same time: the best of the other ${others.length} is the best of ${others.length - twins.length + 1}.`,
          ]),
      '± is one standard error over the loads, each run with one seed: it shows how the loads differ, not how one load varies between seeds.',
    ],
    findings: [
      `kv-headroom's makespan is ${shown(over('kv-headroom'))} of least-requests' on average, at worst ${worst.toFixed(3)} of the best of the other three.`,
      'The bound is one that no schedule can beat: the longest chain alone on an engine, or the work divided by the engines.',
    ],
    tables: [
      {
        title: 'Makespan, seconds',
        columns: ['load', ...names, 'lower bound'],
        rows: results.map(({ name, made, bound }) => [
          name,
          ...names.map(n => (made[n].makespanMs / 1000).toFixed(1)),
          (bound / 1000).toFixed(1),
        ]),
      },
      {
        title: 'Recomputed over generated tokens, mean over loads',
        columns: names,
        rows: [names.map(name => shown(recomputed(name)))],
      },
    ],
    pictures: [
      {
        name: 'makespan',
        caption: 'Makespan over that of least-requests, a point a load, by KV cache of an engine.',
        spec: {
          data: {
            values: results.flatMap(({ name, made }) =>
              names.map(policy => ({
                policy,
                kv: name.split(' ')[0],
                ratio: made[policy].makespanMs / made['least-requests'].makespanMs,
              })),
            ),
          },
          width: 110,
          height: 240,
          mark: 'point',
          encoding: {
            x: { field: 'policy', type: 'nominal', title: null },
            y: { field: 'ratio', type: 'quantitative', title: '× least-requests', scale: { zero: false } },
            color: { field: 'policy', type: 'nominal', legend: null },
            column: {
              field: 'kv',
              type: 'nominal',
              title: 'tokens of KV cache',
              sort: ['134k', '268k', '402k', '1072k'],
            },
          },
        },
      },
    ],
    data: results.map(({ name, bound, made }) => ({ name, boundMs: bound, made })),
  }
}
