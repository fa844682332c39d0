/**
 * `troupe why RUN [ID]`: prints what a run, group, trajectory or turn waits for, since when, and on whom; or how it
 * ended.
 *
 * in   a run's log        out  the chain from the open fact to whoever owes the answer; with --json, one line
 * Exit codes: 1 the run, group, trajectory or turn waits for an actor or process that is silent, down or gone, or is
 * paused by a person or a full disk; 0 otherwise.
 */
import type { Command } from 'commander'
import { placeText } from '../../replay/log/place'
import type { Link } from '../../replay/why/answerers'
import { owedBy, type Wait } from '../../replay/why/chains'
import type { LastEvent } from '../../replay/why/evidence'
import type { Explanation } from '../../replay/why/explain'
import { whyRun } from '../../replay/why/whyRun'
import { systemEffects } from '../../runtime/effects'
import { placeOptions, withBus, withDirectory } from '../options/busOptions'
import { withLog } from '../replay/runOptions'
import { jsonText } from '../replay/text/jsonText'
import { nextCommands } from './nextCommands'
import { isStuck, whyText } from './whyText'

interface WhyOptions {
  readonly bus: string
  readonly dir?: string
  readonly json?: boolean
  readonly at?: string
}

export function registerWhy(program: Command): void {
  const command = program
    .command('why <run> [id]')
    .description(
      'print what a run, group, trajectory or turn (group/member#turn) waits for, since when, and who has to act',
    )
    .option('--json', 'print one JSON line')
    .option('--at <topic:partition:offset>', 'read the run as it was when the record at this position was written')
  withDirectory(withBus(command)).action(why)
}

const why = (run: string, id: string | undefined, { json, ...where }: WhyOptions): Promise<void> =>
  withLog({ ...where, run }, async recorded => {
    const found = await whyRun(recorded, id, systemEffects.now())
    const started = await recorded.started()
    const next = nextCommands(found, {
      run: recorded.run,
      recipe: String(started.recipe.name ?? 'RECIPE'),
      place: placeOptions(where),
    })
    if (json) process.stdout.write(`${jsonText(jsonOf(recorded.run, found, next))}\n`)
    else process.stdout.write(`${whyText(recorded.run, found, next).join('\n')}\n`)
    process.exitCode = isStuck(found) ? 1 : 0
  })

const jsonEvent = (event: LastEvent | null) =>
  event === null ? null : { what: event.what, at: event.at, place: placeText(event.place) }

const jsonLink = ({ last, ...link }: Link) => ({ ...link, last: jsonEvent(last) })

function jsonWait({ chain, ...one }: Wait) {
  const { kind, name } = owedBy({ chain, ...one })
  return { ...one, owedBy: { kind, name }, chain: chain.map(jsonLink) }
}

const jsonOf = (run: string, { last, waits, ...found }: Explanation, next: readonly string[]) => ({
  ...{ type: 'why', name: run, ...found, last: jsonEvent(last) },
  waits: waits.map(({ count, oldest }) => ({ count, ...jsonWait(oldest) })),
  next,
})
