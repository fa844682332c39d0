/** Options that every command on a run shares: the bus's address, and the directory of a run on Kafka. */
import type { Command } from 'commander'

const defaultBus = 'lmdb:.troupe'

/** Adds `--bus`. */
export function withBus(command: Command): Command {
  return command.option(
    '--bus <address>',
    'memory:, lmdb:DIR or kafka://HOST:PORT[,…] (env TROUPE_BUS)',
    process.env.TROUPE_BUS ?? defaultBus,
  )
}

/** Adds `--dir`. */
export function withDirectory(command: Command): Command {
  return command.option(
    '--dir <directory>',
    'where runs keep models, checkpoints and blobs, on Kafka (default: .troupe)',
  )
}
