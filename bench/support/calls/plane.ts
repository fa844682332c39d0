/**
 * Runs coordinator and dispatcher of `bench calls` over a bus, with a load of calls that are all requested at once.
 *
 * in   a bus, the number of calls, the number of executors to wait for
 * out  seconds from the first turn to the last answer, CPU seconds, a tally of the answers
 * No engine runs: finished turns are appended as fast as the bus takes them. Nothing renders, so a rollout ends with
 * its calls. As a process of its own, this program prints `executors` when it begins to wait for them, `began` at the
 * first turn, `half` when half of the calls are answered, `ended` when all are, and last its figures.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { coordinator } from '../../../actors/rollouts/coordinator'
import { grouper } from '../../../actors/rollouts/grouper'
import { owner } from '../../../actors/rollouts/owner'
import { DISPATCH_LINGER_MS, type DispatcherState, dispatcher } from '../../../actors/tools/dispatcher'
import { selectionOf } from '../../../config'
import type { ToolCompleted } from '../../../messages/facts'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import type { Bus } from '../../../runtime/bus/bus'
import { openBus } from '../../../runtime/bus/open'
import { systemEffects } from '../../../runtime/effects'
import { openTroupe } from '../../../runtime/embed'
import { PARTITIONS, RUN } from './executor'
import { requestOf, type Tally, tallyOf, trajectoriesOf, turnOf } from './load'

const BATCH = 256

export interface PlaneFigures extends Tally {
  readonly seconds: number
  /** CPU seconds that this process used during `seconds`. */
  readonly cpuSeconds: number
}

export interface PlaneOptions {
  readonly calls: number
  readonly executors: number
  /** Called when the run exists, so that executors can join it. */
  readonly onWaiting?: () => void | Promise<void>
  /** Called when the first turn is about to be appended. */
  readonly onBegan?: () => void
  readonly onHalf?: () => void
  /** Called when the last call is answered. */
  readonly onEnded?: () => void
}

export async function runPlane(
  bus: Bus,
  { calls, executors, onWaiting, onBegan, onHalf, onEnded }: PlaneOptions,
): Promise<PlaneFigures> {
  const troupe = await openTroupe({ bus, run: RUN, blobs: memoryBlobs(), partitions: PARTITIONS })
  const failed = (error: Error) => {
    throw error
  }
  const trajectories = trajectoriesOf(calls)
  const answers: ToolCompleted[] = []
  let asked = 0
  const own = owner(
    coordinator({ turnTimeoutMs: 3_600_000 }),
    grouper({ runSeed: 1, selection: selectionOf(loadRecipe('quickstart').config.value) }),
  )
  const evolve: typeof own.evolve = (before, fact, origin) => {
    if (fact.type === 'turn.asked') asked++
    else if (fact.type === 'tool.completed') {
      answers.push(fact)
      if (answers.length === calls >> 1) onHalf?.()
    }
    return own.evolve(before, fact, origin)
  }
  let state: DispatcherState | undefined
  const plain = dispatcher()
  const watched = { ...plain, initial: () => (state = plain.initial()) }
  const hosts = [
    await troupe.host({
      ...{ behaviour: watched, feeds: [{ topic: 'tool-calls', from: 'latest' }], onFailed: failed },
      lingerMs: DISPATCH_LINGER_MS,
    }),
    await troupe.host({
      ...{ behaviour: { ...own, evolve }, feeds: [{ topic: 'trajectories', from: 'committed' }] },
      ...{ owner: 'bench', onFailed: failed },
    }),
  ]
  for (const host of hosts) await host.live
  for (let at = 0; at < trajectories.length; at += BATCH)
    await troupe.journal.append(trajectories.slice(at, at + BATCH).map((one, k) => requestOf(one, at + k)))
  await onWaiting?.()
  const isReady = () => asked >= trajectories.length && state!.executors.size >= executors
  while (!isReady()) await sleep(50)

  onBegan?.()
  const began = performance.now()
  const cpu = process.cpuUsage()
  for (let at = 0; at < trajectories.length; at += BATCH)
    await troupe.journal.append(trajectories.slice(at, at + BATCH).map(turnOf))
  let tally = tallyOf(trajectories, answers)
  while (answers.length < calls || tally.right + tally.wrong < calls) {
    await sleep(20)
    if (answers.length >= calls) tally = tallyOf(trajectories, answers)
  }
  const seconds = (performance.now() - began) / 1000
  const { user, system } = process.cpuUsage(cpu)
  onEnded?.()
  // Waits for late answers of executors whose lease had ended; these answers count as repeated.
  await sleep(500)
  await troupe.close()
  return { ...tallyOf(trajectories, answers), seconds, cpuSeconds: (user + system) / 1e6 }
}

async function main(address: string, calls: number, executors: number): Promise<void> {
  const bus = await openBus(address, { effects: systemEffects })
  const say = (line: string) => process.stdout.write(`${line}\n`)
  const figures = await runPlane(bus, {
    ...{ calls, executors },
    onWaiting: () => void say('executors'),
    onBegan: () => void say('began'),
    onHalf: () => void say('half'),
    onEnded: () => void say('ended'),
  })
  say(JSON.stringify(figures))
  await bus.close()
  process.exit(0)
}

if (require.main === module) void main(process.argv[2]!, Number(process.argv[3]), Number(process.argv[4]))
