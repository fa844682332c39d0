/** Faults of a Kafka broker, and of the link to it: killed and started again, stopped, cut off. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { KafkaServers } from '../kafka'
import type { SilentProxy } from '../silentProxy'
import type { Fault } from './fault'

const restartMs = 500

/** @param link a proxy through which some of the run's processes reach the broker */
export function brokerFaults(kafka: KafkaServers, link: SilentProxy, longestMs: number): readonly Fault[] {
  const broker = kafka.brokers[0]!
  return [
    {
      name: 'restart broker',
      weight: 0.5,
      async strike() {
        broker.kill('SIGKILL')
        await sleep(restartMs)
        await broker.start()
        return 'restart broker'
      },
    },
    {
      name: 'stop broker',
      weight: 0.5,
      async strike(random) {
        const forMs = Math.round(random.uniform() * longestMs)
        broker.kill('SIGSTOP')
        await sleep(forMs)
        broker.kill('SIGCONT')
        return `stop broker for ${forMs} ms`
      },
    },
    {
      name: 'cut link',
      weight: 1.5,
      async strike(random) {
        const forMs = Math.round(random.uniform() * longestMs)
        link.cut()
        await sleep(forMs)
        link.heal()
        return `cut link for ${forMs} ms`
      },
    },
  ]
}
