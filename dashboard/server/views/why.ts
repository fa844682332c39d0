/**
 * Explains to the page what a run, group or trajectory waits for, since when, and on whom, as `troupe why` does.
 *
 * in   an opened run; an id, or none for the run        out  JSON of api.ts
 * Invariant: a run's latest answer is kept for 2 s, so that for several readers with the same question the log is read
 * once.
 */
import { placeText } from '../../../replay/log/place'
import { type Link, seconds } from '../../../replay/why/answerers'
import { owedBy } from '../../../replay/why/chains'
import type { Explanation, SummedWait } from '../../../replay/why/explain'
import { whyRun } from '../../../replay/why/whyRun'
import { systemEffects } from '../../../runtime/effects'
import type { WaitLine, WhyReport } from '../../api'
import { busWords, type CommandPlace, commandText } from '../commands'
import type { OpenedRun } from '../openedRun'
import { shownLine } from '../shownText'

const mostWaits = 12
const keptMs = 2000

interface Kept {
  readonly id: string | undefined
  readonly at: number
  readonly report: Promise<WhyReport>
}

const kept = new WeakMap<OpenedRun, Kept>()

export function why(run: OpenedRun, place: CommandPlace, id: string | undefined): Promise<WhyReport> {
  const known = kept.get(run)
  const now = systemEffects.elapsed()
  if (known !== undefined && known.id === id && now - known.at < keptMs) return known.report
  const report = asked(run, place, id)
  kept.set(run, { id, at: now, report })
  return report
}

async function asked({ recorded }: OpenedRun, place: CommandPlace, id: string | undefined): Promise<WhyReport> {
  const found = await whyRun(recorded, id, systemEffects.now())
  return {
    standing: found.run,
    outcome: outcomeOf(found),
    waits: found.waits.slice(0, mostWaits).map(one => waitLine(one, found.asOf)),
    more: Math.max(0, found.waits.length - mostWaits),
    command: commandText(['why', place.run, ...(id === undefined ? [] : [id]), ...busWords(place)]),
  }
}

function outcomeOf({ outcome }: Explanation): string {
  switch (outcome.kind) {
    case 'waiting':
      return 'waiting'
    case 'scored':
      return shownLine(outcome.reward === null ? outcome.why : `scored ${outcome.reward} (${outcome.why})`, 400)
    case 'answered':
      return shownLine(`ended: ${outcome.why}`, 400)
    case 'lost':
      return shownLine(`lost: ${outcome.why}`, 400)
    default:
      return shownLine(`${outcome.kind} by ${outcome.by}: ${outcome.why}`, 400)
  }
}

function waitLine({ count, oldest }: SummedWait, now: number): WaitLine {
  return {
    ...{ id: shownLine(oldest.id), for: oldest.for, since: oldest.since, count, state: oldest.state },
    owes: labelOf(owedBy(oldest)),
    chain: oldest.chain.map(link => ({
      name: labelOf(link),
      says: shownLine(link.says, 400),
      last: link.last === null ? '' : `${shownLine(link.last.what)} ${seconds(now - link.last.at)} ago`,
      place: link.last === null ? '' : placeText(link.last.place),
    })),
  }
}

const labelOf = ({ kind, name }: Link): string =>
  shownLine(['fact', 'command', 'process', 'person'].includes(kind) ? name : `${kind} ${name}`)
