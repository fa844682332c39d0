/**
 * A consumer of group g that prints each record it gets, and tries to commit when its partition is revoked.
 * Usage: kafkaChild.ts BUS
 */
import { openBus, type Subscription } from '../../runtime/bus'

async function main(address: string): Promise<void> {
  const say = (text: string): void => void process.stdout.write(`${text}\n`)
  const bus = await openBus(address)
  let member: Subscription | undefined
  member = await bus.subscribe(
    {
      topics: ['t'],
      group: 'g',
      from: 'earliest',
      onError: error => say(`error ${error.message}`),
      onRevoked: async ({ topic, partition }) => {
        await member?.commit({ topic, partition, offset: 1 }).then(
          () => say('commit accepted'),
          thrown => say(`commit ${thrown.code}`),
        )
        say(`revoked ${partition}`)
      },
    },
    async records => {
      for (const record of records) say(`took ${Buffer.from(record.value).toString()}`)
    },
  )
}

void main(process.argv[2]!)
