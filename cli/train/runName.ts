/**
 * Whether a run may be gone on with or joined under the name that the command line gives.
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

/** Whether other processes, and other runs, may be on the same bus: an embedded log is one run's and has a lease. */
export const isShared = ({ bus }: Pick<NamedRun, 'bus'>): boolean => bus.startsWith('kafka:')

/** @throws TroupeError cli.no_run, cli.role_alone, cli.role_unnamed */
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
      message: `--role ${options.role} needs a bus that processes share, and '${options.bus}' is one process's alone`,
      hint: 'use --bus kafka://HOST:PORT (`troupe setup kafka` fetches a broker), or leave --role out',
    })
  }
  if (options.run === undefined && options.resume === undefined) {
    throw new TroupeError('cli.role_unnamed', {
      ...common,
      message: `--role ${options.role} does not say of which run`,
      hint: 'give all processes of a run the same --run ID',
    })
  }
}

/** On a bus that several runs share, its topics say which there are. */
export async function refuseWrongNameOn(bus: Bus, options: NamedRun, id: string): Promise<void> {
  const runs = await runsOn(bus)
  if (options.resume !== undefined && !runs.includes(id)) throw noRunOn(options.bus, runs, id)
}
