/**
 * `--stop-on ALARM`: builds the recipe override under which the named alarms end the run; alarms that the recipe lacks
 * are added.
 */

import { knownAlarms, type RecipeConfig } from '../../config'
import { TroupeError } from '../../runtime/errors'
import { didYouMean } from '../../runtime/settings/nearestName'

export function stopOverrides(alarms: RecipeConfig['alarms'], names: readonly string[]): readonly string[] {
  if (names.length === 0) return []
  const added = [...new Set(names)].flatMap(name => {
    if (alarms.some(alarm => alarm.name === name)) return []
    if (knownAlarms.includes(name)) return [{ name, stop: true }]
    const known = [...new Set([...alarms.map(alarm => alarm.name), ...knownAlarms])]
    throw new TroupeError('cli.no_alarm', {
      boundary: 'cli',
      retriable: false,
      message: `--stop-on ${name}: the alarm does not exist${didYouMean(name, known)}`,
      hint: `known alarms: ${known.join(', ')}; a recipe may define others`,
    })
  })
  const own = alarms.map(alarm => (names.includes(alarm.name) ? { ...alarm, stop: true, off: undefined } : alarm))
  // Overrides the whole list, since a recipe without alarms has no element to override.
  return [`alarms=${JSON.stringify([...own, ...added])}`]
}
