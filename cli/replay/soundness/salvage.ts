/**
 * `troupe replay salvage RUN`: saves what is before the damage of a log as a run of the same name in another directory,
 * verifies that run, and says what was lost.
 */
import type { Command } from 'commander'
import { openLog } from '../../../replay/log/recordedRun'
import { type Salvaged, salvageRun } from '../../../replay/salvage/salvageRun'
import { verifyRun } from '../../../replay/verify/verifyRun'
import { escapeForTerminal } from '../../io/terminal'
import { withBus } from '../../options/busOptions'
import { jsonText } from '../text/jsonText'

interface SalvageCommand {
  readonly bus: string
  readonly to?: string
  readonly json?: boolean
}

const shown = 12

export function registerSalvage(replay: Command): void {
  const command = replay
    .command('salvage <run>')
    .description('save what is before the damage of a log as a run of the same name in another directory')
    .option('--to <address>', 'where the new run is written, lmdb:DIR (default: salvaged/ in the directory of --bus)')
    .option('--json', 'print one JSON object')
  withBus(command).action(async (run: string, { json, ...options }: SalvageCommand) => {
    const salvaged = await salvageRun({ ...options, run })
    const recorded = await openLog({ bus: salvaged.to, run, checkAll: true })
    try {
      const { ok, problems } = await verifyRun(recorded)
      if (json) process.stdout.write(`${jsonText({ ...salvaged, ok, problems })}\n`)
      else for (const line of report(salvaged, ok)) process.stdout.write(`${escapeForTerminal(line)}\n`)
      process.exitCode = ok ? 0 : 1
    } finally {
      await recorded.close()
    }
  })
}

function report({ run, to, records, until, damage, lost, trajectories, steps }: Salvaged, ok: boolean): string[] {
  const some = (all: readonly (string | number)[]) =>
    all.slice(0, shown).join(', ') + (all.length > shown ? `, and ${all.length - shown} more` : '')
  return [
    ...damage.slice(0, shown).map(fault => `damaged: ${fault}`),
    ...lost.map(
      ({ topic, partition, from, through }) =>
        `lost: ${topic}:${partition} from offset ${from} ${through === null ? 'on' : `to ${through}`}`,
    ),
    ...(trajectories.length > 0 ? [`trajectories that lack records: ${some(trajectories)}`] : []),
    ...(steps.length > 0 ? [`steps that are lost: ${some(steps)}`] : []),
    until === null ? 'no fact is lost' : `facts are saved up to ${new Date(until).toISOString()}`,
    `run ${run}: ${records} records saved, ${ok ? 'sound' : 'not sound: see `troupe replay verify`'}; read it with --bus ${to} --run ${run}`,
  ]
}
