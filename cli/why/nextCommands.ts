/**
 * Lists the commands that help next, for an explanation of `troupe why`.
 *
 * in   an explanation        out  command lines, the most useful first; for a run without a problem, at most
 * `troupe why` for the trajectory or turn that waits first
 */
import { owedBy } from '../../replay/why/chains'
import type { Explanation } from '../../replay/why/explain'

export interface Where {
  readonly run: string
  readonly recipe: string
  /** Options with which another command finds the same run, as `placeOptions` writes them. */
  readonly place: string
}

export function nextCommands(found: Explanation, { run, recipe, place }: Where): readonly string[] {
  const { subject, outcome, waits } = found
  const states = new Set(waits.map(({ oldest }) => oldest.state))
  const next: string[] = []
  if (found.run === 'crashed' || found.run === 'stopped') next.push(`troupe train ${recipe} --resume ${run}${place}`)
  else if (states.has('down') || states.has('silent') || states.has('gone'))
    next.push(`troupe doctor --tree ${run}${place}`)
  const disk = waits.find(({ oldest }) => owedBy(oldest).kind === 'disk')
  if (disk !== undefined) next.push(`df -h ${owedBy(disk.oldest).name}`)
  if (waits.some(({ oldest }) => owedBy(oldest).kind === 'person')) next.push(`troupe control ${run} resume${place}`)
  if (subject.kind === 'run') {
    const [first] = waits.filter(({ oldest }) => oldest.id.includes('/'))
    if (first !== undefined)
      next.push(`troupe why ${run} '${first.oldest.id.split('#').slice(0, 2).join('#')}'${place}`)
  } else if (subject.kind !== 'group' && ['failed', 'refused', 'timed-out'].includes(outcome.kind)) {
    next.push(`troupe replay show ${subject.trajectory} --run ${run}${place}`)
  }
  return next
}
