/** The options that commands on runs share: the bus's address, and the directory of a run on Kafka. */
import type { Command } from 'commander'

const defaultBus = 'lmdb:.troupe'

/** Adds the option `--bus`, the address of the message bus. */
export function withBus(command: Command): Command {
  return command.option(
    '--bus <address>',
    'address of the bus: memory:, lmdb:DIR or kafka://HOST:PORT[,…] (env TROUPE_BUS)',
    process.env.TROUPE_BUS ?? defaultBus,
  )
}

/** Adds the option `--dir`, the directory of a run on Kafka. */
export function withDirectory(command: Command): Command {
  return command.option(
    '--dir <directory>',
    'directory where runs on Kafka keep models, checkpoints and blobs (default: .troupe)',
  )
}

/** Writes a word for a shell: in quotes if it holds more than the usual characters of paths and addresses. */
const shellWord = (text: string): string =>
  /^[\w./:,@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`

/** Returns the options with which another command finds the same run; '' if it finds the run without options. */
export const placeOptions = ({ bus, dir }: { readonly bus: string; readonly dir?: string }): string =>
  `${bus === defaultBus ? '' : ` --bus ${shellWord(bus)}`}${dir === undefined ? '' : ` --dir ${shellWord(dir)}`}`
