/**
 * Refuses names of runs that do not fit the command: a run to resume that does not exist, a role without a shared bus
 * or a run's name.
 */
import type { Role } from '../../actors/run/run'
import type { Bus } from '../../runtime/bus/bus'
import { TroupeError } from '../../runtime/errors'
import { directoryOf, noRun, noRunOn, runsOn } from '../../runtime/openRun'
import { runsOf } from '../../runtime/runDirectory'

export interface NamedRun {
  readonly bus: string
  readonly run?: string
  readonly resume?: string
  readonly role: Role
}

/**
 * True for a bus that several processes and runs share. An embedded log belongs to one process, which holds its lease.
 */
export const isShared = ({ bus }: Pick<NamedRun, 'bus'>): boolean => bus.startsWith('kafka:')

/**
 * Refuses a run to resume that does not exist in the directory of an lmdb bus, and a role without a shared bus or a
 * run's name.
 * @throws TroupeError run.not_found, cli.role_alone, cli.role_unnamed
 */
export function refuseWrongName(options: NamedRun, id: string): void {
  if (options.role !== 'all') {
    refuseWrongRole(options)
    return
  }
  if (!options.bus.startsWith('lmdb:')) return
  const directory = directoryOf(options.bus)
  if (options.resume !== undefined && !runsOf(directory).includes(id)) throw noRun(directory, id)
}

function refuseWrongRole(options: NamedRun): void {
  const common = { boundary: 'cli', retriable: false } as const
  if (!isShared(options)) {
    throw new TroupeError('cli.role_alone', {
      ...common,
      message: `--role ${options.role} needs a bus that processes share, but '${options.bus}' belongs to one process`,
      hint: 'use --bus kafka://HOST:PORT (`troupe setup kafka` fetches a broker), or omit --role',
    })
  }
  if (options.run === undefined && options.resume === undefined) {
    throw new TroupeError('cli.role_unnamed', {
      ...common,
      message: `--role ${options.role} takes one role in a run, but neither --run nor --resume names the run`,
      hint: 'give all processes of the run the same --run ID',
    })
  }
}

/**
 * Refuses a run to resume that does not exist on a shared bus, whose topics show which runs exist.
 * @throws TroupeError run.not_found
 */
export async function refuseWrongNameOn(bus: Bus, options: NamedRun, id: string): Promise<void> {
  const runs = await runsOn(bus)
  if (options.resume !== undefined && !runs.includes(id)) throw noRunOn(options.bus, runs, id)
}

/** Date and time in UTC (`20260131-120000`), for the name of a run that got none. */
export const timestamp = () => new Date().toISOString().replace(/[-:]/g, '').replace('T', '-').slice(0, 15)
