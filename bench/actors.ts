/**
 * Compares Troupe's actors with bare nact: the time in which one actor handles a series of messages.
 *
 * Both arms run the same handler. The nact arm dispatches all messages at once into an unbounded mailbox; Troupe's arm
 * awaits every `tell` under a bound of 1,024 queued messages. Rounds alternate; the median of the rounds' ratios is
 * held to the budget, with metrics and without.
 */
import { dispatch, spawn, start, stop } from 'nact'
import { type ActorRef, createActorSystem, type Reply } from '../runtime/actor/system'
import { createMetrics, type MetricsRegistry } from '../runtime/metrics'
import { atLeast, type BenchReport, describeMachine, median, printReport } from './report'

const messages = 50_000
const questions = 5_000
const capacity = 1024
const rounds = 15
const warmUpRounds = 3

interface Arm {
  /** Sends and handles `messages` messages; returns the milliseconds that this took. */
  round(): Promise<number>
  close(): Promise<void>
}

/** Handler that adds up the numbers it receives. `done` resolves when all messages of the round have been handled. */
function summing(): { handle(n: number): void; done(): Promise<void> } {
  let sum = 0
  let count = 0
  let finish: (() => void) | undefined
  return {
    handle(n) {
      sum += n
      if (++count < messages) return
      if (sum !== (messages * (messages - 1)) / 2) throw new Error('a message was lost or handled twice')
      sum = 0
      count = 0
      finish?.()
    },
    done: () =>
      new Promise(resolve => {
        finish = resolve
      }),
  }
}

function nactArm(): Arm {
  const { handle, done } = summing()
  const system = start()
  const ref = spawn(system, (state: null, n: number) => {
    handle(n)
    return state
  })
  return {
    async round() {
      const began = performance.now()
      const all = done()
      for (let n = 0; n < messages; n++) dispatch(ref, n)
      await all
      return performance.now() - began
    },
    close: async () => stop(system),
  }
}

function system(metrics?: MetricsRegistry) {
  return createActorSystem({
    name: 'bench',
    log: { warn: console.error, error: console.error },
    onDeadLetter: letter => {
      throw letter.error
    },
    ...(metrics && { metrics }),
  })
}

function troupeArm(metrics?: MetricsRegistry): Arm {
  const { handle, done } = summing()
  const actors = system(metrics)
  const ref: ActorRef<number> = actors.spawn({ name: 'sum', mailbox: { capacity }, start: () => handle })
  return {
    async round() {
      const began = performance.now()
      const all = done()
      for (let n = 0; n < messages; n++) await ref.tell(n)
      await all
      return performance.now() - began
    },
    close: () => actors.stop(),
  }
}

/** Mean round-trip time of a request to an actor, in ms; requests are sent one after the other. */
async function askMs(): Promise<number> {
  const actors = system()
  const ref = actors.spawn<Reply<number>>({
    name: 'echo',
    mailbox: { capacity },
    start: () => reply => reply.answer(reply.id),
  })
  await ref.started
  const began = performance.now()
  for (let n = 0; n < questions; n++) await ref.ask<number>(reply => reply, { deadlineMs: 10_000 })
  const took = performance.now() - began
  await actors.stop()
  return took / questions
}

export async function bench(): Promise<BenchReport> {
  const arms = { nact: nactArm(), troupe: troupeArm(), measured: troupeArm(createMetrics()) }
  const taken: { readonly nact: number; readonly troupe: number; readonly measured: number }[] = []
  for (let i = 0; i < warmUpRounds + rounds; i++) {
    const troupe = await arms.troupe.round()
    const nact = await arms.nact.round()
    taken.push({ troupe, nact, measured: await arms.measured.round() })
  }
  for (const arm of Object.values(arms)) await arm.close()
  const kept = taken.slice(warmUpRounds)
  const rate = (ms: number) => (messages / ms) * 1000
  return {
    bench: 'actors',
    machine: describeMachine(),
    metrics: {
      nactMessagesPerSecond: rate(median(kept.map(({ nact }) => nact))),
      troupeMessagesPerSecond: rate(median(kept.map(({ troupe }) => troupe))),
      troupeWithMetricsMessagesPerSecond: rate(median(kept.map(({ measured }) => measured))),
      troupeAsksPerSecond: 1000 / (await askMs()),
    },
    budgets: [
      atLeast('tell, share of bare nact dispatch', median(kept.map(({ nact, troupe }) => nact / troupe)), 0.6),
      atLeast('tell with metrics, share of bare nact', median(kept.map(({ nact, measured }) => nact / measured)), 0.6),
    ],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
