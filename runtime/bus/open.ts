/**
 * Opens a bus by its address, as in `--bus` and TROUPE_BUS.
 *
 * in   memory: | lmdb:DIRECTORY | kafka://HOST:PORT[,…]
 * out  an open Bus; or an error: `bus.address_invalid` with the known forms, or an error of the driver
 */
import type { Effects } from '../effects'
import { TroupeError } from '../errors'
import type { Bus } from './bus'
import { busErrors } from './busErrors'
import { openKafkaBus } from './kafka/kafkaBus'
import { openLmdbBus } from './lmdb/lmdbBus'
import { openMemoryBus } from './memory/memoryBus'

export interface OpenBusOptions {
  /** Access mode. Default 'write'. A memory bus ignores it, since no other process can open it. */
  readonly mode?: 'write' | 'read'
  readonly effects?: Pick<Effects, 'now'>
  /** True to check every page of the data file of an lmdb log (see `LmdbBusOptions`); other buses ignore it. */
  readonly checkAll?: boolean
}

export async function openBus(address: string, options: OpenBusOptions = {}): Promise<Bus> {
  const effects = options.effects ? { effects: options.effects } : {}
  if (address === 'memory:') return openMemoryBus(effects)
  if (address.startsWith('lmdb:') && address.length > 'lmdb:'.length) {
    const { mode = 'write', checkAll = false } = options
    return openLmdbBus({ directory: address.slice('lmdb:'.length), mode, checkAll, ...effects })
  }
  if (address.startsWith('kafka:')) {
    const bus = await openKafkaBus(address)
    return options.mode === 'read' ? readOnly(bus) : bus
  }
  throw new TroupeError('bus.address_invalid', {
    boundary: 'bus',
    retriable: false,
    message: `${JSON.stringify(address)} is not a valid bus address`,
    hint: 'use memory:, lmdb:DIRECTORY or kafka://HOST:PORT',
  })
}

/**
 * Wraps a bus so that appends and new topics are refused. Groups may still commit offsets, which are no records of the
 * run.
 */
function readOnly(bus: Bus): Bus {
  const refused = async (): Promise<never> => {
    throw busErrors.readOnly()
  }
  return { ...bus, append: refused, createTopics: refused }
}
