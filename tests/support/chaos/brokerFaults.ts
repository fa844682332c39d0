/** Faults that restart or stop a Kafka broker, or cut the link between it and some of the run's processes. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { KafkaServers } from '../kafka'
import type { SilentProxy } from '../silentProxy'
import type { Fault } from './fault'

const restartMs = 500

/**
 * @param link a proxy through which some of the run's processes reach the broker
 * @param longestMs upper bound on the duration of a stop and of a cut, ms
 */
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
