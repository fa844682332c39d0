/**
 * Compares scheduling policies in the simulator, and measures the CPU time of a scheduling decision.
 *
 * Base: 64 engines, 256 trajectories each. Sweep: 32 loads around it, on fewer engines with as many trajectories each
 * (TROUPE_SWEEP_ENGINES; default 8). All arms run the same trace on the same engines. Only kv-headroom's requests carry
 * priorities: the systems from which the other policies come send none. The bound is one that no schedule can beat.
 */
import {
  baseLoad,
  createScheduler,
  h100,
  type Load,
  lowerBoundMs,
  type PolicyName,
  policies,
  type SimulationResult,
  simulate,
  sweepLoads,
} from '../kernels'
import { type EngineId, engineId, groupId, type TrajectoryId, trajectoryId } from '../messages/ids'
import { atMost, type BenchReport, describeMachine, printReport } from './report'

const names = Object.keys(policies) as PolicyName[]
const sweepEngines = Number(process.env.TROUPE_SWEEP_ENGINES ?? 8)

type Results = Readonly<Record<PolicyName, SimulationResult>>

function runAll({ trace, model, engines }: Load): Results {
  return Object.fromEntries(names.map(policy => [policy, simulate(trace, { model, engines, policy })])) as Results
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`

/**
 * Microseconds of CPU per decision with `queued` turns waiting: the end of a turn, the request of the next, and the
 * decision about it.
 */
function microsecondsOfDecision(queued: number, engines: number): number {
  const scheduler = createScheduler('kv-headroom')
  for (let i = 0; i < engines; i++) {
    scheduler.engineJoined({ ...h100, engine: engineId(`e${i}`), contextTokens: 16_384, prioritySign: -1 })
  }
  let members = 0
  let nowMs = 0
  const running: { trajectory: TrajectoryId; turn: number; contextTokens: number; engine: EngineId }[] = []
  const asked = new Map<TrajectoryId, { turn: number; contextTokens: number }>()
  const ask = (
    trajectory: TrajectoryId,
    order: number,
    turn: number,
    contextTokens: number,
    engine: EngineId | null,
  ) => {
    asked.set(trajectory, { turn, contextTokens })
    const group = groupId(`g${Math.floor(order / 32)}`)
    const lengths = { contextTokens, promptTokens: 250, boundTokens: 8192 }
    scheduler.turnAsked({ trajectory, group, turn, ...lengths, order, engine })
  }
  const decide = () => {
    for (const { trajectory, engine } of scheduler.decide(nowMs).assignments) {
      running.push({ trajectory, engine, ...asked.get(trajectory)! })
    }
  }
  const begin = () => {
    const order = members++
    ask(trajectoryId(groupId(`g${Math.floor(order / 32)}`), order % 32), order, 0, 250, null)
  }
  while (scheduler.waitingTurns < queued) {
    begin()
    if (members % 512 === 0) decide()
  }
  const rounds = 30_000
  let decisions = 0
  const warmUp = rounds / 3
  let began = process.cpuUsage()
  for (let round = 0; round < rounds + warmUp; round++) {
    if (round === warmUp) {
      began = process.cpuUsage()
      decisions = 0
    }
    nowMs += 2
    const at = (round * 7919) % running.length
    const one = running[at]!
    running[at] = running[running.length - 1]!
    running.pop()
    const contextTokens = one.contextTokens + 300 + ((round * 37) % 900)
    scheduler.turnEnded(one.trajectory, contextTokens, nowMs)
    if (contextTokens > 4000 + ((round * 101) % 4000)) {
      scheduler.trajectoryReleased(one.trajectory)
      begin()
    } else {
      ask(one.trajectory, orderFrom(one.trajectory), one.turn + 1, contextTokens, one.engine)
    }
    const before = running.length
    decide()
    decisions += Math.max(1, running.length - before)
  }
  const { user, system } = process.cpuUsage(began)
  return (user + system) / decisions
}

function orderFrom(trajectory: TrajectoryId): number {
  const [group, member] = trajectory.slice(1).split('/')
  return Number(group) * 32 + Number(member)
}

export async function bench(): Promise<BenchReport> {
  // The decision is measured first, while the heap is a scheduler's and does not yet hold finished simulations.
  const decisionMicroseconds = microsecondsOfDecision(10_000, 64)
  const base = baseLoad()
  const began = performance.now()
  const baseResult = runAll(base)
  const simulationSeconds = (performance.now() - began) / 1000 / names.length
  const bound = lowerBoundMs(base.trace, base.model, base.engines)
  const metrics: Record<string, number> = { 'base.lowerBound.s': bound.ms / 1000 }
  for (const policy of names) {
    const { makespanMs, recomputedTokens, generatedTokens, preemptions, kvMeanShare, idleShare } = baseResult[policy]
    metrics[`base.${policy}.s`] = makespanMs / 1000
    metrics[`base.${policy}.preemptions`] = preemptions
    metrics[`base.${policy}.recomputedShare`] = recomputedTokens / generatedTokens
    metrics[`base.${policy}.kvMeanShare`] = kvMeanShare
    metrics[`base.${policy}.idleShare`] = idleShare
  }
  const ratios: number[] = []
  const worst: number[] = []
  for (const load of sweepLoads(sweepEngines)) {
    const results = runAll(load)
    const ours = results['kv-headroom'].makespanMs
    const others = names.filter(name => name !== 'kv-headroom').map(name => results[name].makespanMs)
    ratios.push(ours / results['least-requests'].makespanMs)
    worst.push(ours / Math.min(...others))
    const row = names.map(name => `${name} ${seconds(results[name].makespanMs)}`).join(', ')
    process.stderr.write(`${load.name}: ${row}; × least-requests ${ratios.at(-1)!.toFixed(3)}\n`)
  }
  metrics['sweep.loads'] = ratios.length
  metrics['sweep.best'] = Math.min(...ratios)
  metrics['sweep.engines'] = sweepEngines
  metrics['base.simulation.s'] = simulationSeconds
  const ours = baseResult['kv-headroom']
  const over = (policy: PolicyName) => ours.makespanMs / baseResult[policy].makespanMs
  return {
    bench: 'scheduler',
    machine: describeMachine(),
    metrics,
    budgets: [
      atMost('base: makespan over static-async', over('static-async'), 0.82),
      atMost('base: makespan over least-requests', over('least-requests'), 0.86),
      atMost('base: recomputed over generated tokens', ours.recomputedTokens / ours.generatedTokens, 0.25),
      atMost('base: seconds a simulation', simulationSeconds, 60),
      atMost('sweep: mean over least-requests', ratios.reduce((a, b) => a + b, 0) / ratios.length, 0.9),
      atMost('sweep: worst over the best of the others', Math.max(...worst), 1.01),
      atMost('µs a decision, 10,000 queued', decisionMicroseconds, 20),
    ],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
