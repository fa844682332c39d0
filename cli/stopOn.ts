/** `--stop-on ALARM`: assignments that make an alarm end the run; one that the recipe has not is added. */
import { closest, distance } from 'fastest-levenshtein'
import { TroupeError } from '../runtime/errors'
import { knownAlarms, type RecipeConfig } from '../runtime/recipe'

export function stopOverrides(alarms: RecipeConfig['alarms'], names: readonly string[]): readonly string[] {
  let next = alarms.length
  return [...new Set(names)].map(name => {
    const at = alarms.findIndex(alarm => alarm.name === name)
    if (at >= 0) return `alarms.${at}.stop=true`
    if (knownAlarms.includes(name)) return `alarms.${next++}=${JSON.stringify({ name, stop: true })}`
    const known = [...new Set([...alarms.map(alarm => alarm.name), ...knownAlarms])]
    const nearest = closest(name, known)
    throw new TroupeError('cli.no_alarm', {
      boundary: 'cli',
      retriable: false,
      message: `--stop-on ${name}: no such alarm${distance(name, nearest) <= 4 ? `, did you mean '${nearest}'?` : ''}`,
      hint: `alarms: ${known.join(', ')}; a recipe may have its own`,
    })
  })
}
