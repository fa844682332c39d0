/** Opens the Kafka bus that a judge and its executors share. Any other bus belongs to one process, and is refused. */
import type { Bus } from '../../runtime/bus/bus'
import { openKafkaBus } from '../../runtime/bus/kafka/kafkaBus'
import { TroupeError } from '../../runtime/errors'

/** Opens the bus. @throws TroupeError cli.wrong_usage if the address is not Kafka's; the errors of `openKafkaBus` */
export async function kafkaBus(address: string): Promise<Bus> {
  if (address.startsWith('kafka:')) return openKafkaBus(address)
  throw new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: `--bus ${address} is not an address of Kafka; a judge with executors needs kafka://HOST:PORT[,…]`,
    hint: 'without --bus, `troupe judge` runs submissions on this host',
  })
}
