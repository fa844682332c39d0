/**
 * `troupe replay alarms`: checks the steps of a run against the alarm rules of its recipe and of --alarm, and prints
 * the alarms that they raise. Exit code 1 when an alarm is raised.
 */
import type { Command } from 'commander'
import { parse } from 'yaml'
import { type Alarm, alarmSection, completeAlarm, knownAlarms, stalled } from '../../config'
import { type RaisedAlarm, raisedAlarms } from '../../replay/learning/raisedAlarms'
import { asError } from '../../runtime/errors'
import { escapeForTerminal, painter } from '../io/terminal'
import { repeatable } from '../options/repeatable'
import { type ReadOptions, usageError, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface AlarmsOptions extends ReadOptions {
  readonly json?: boolean
  readonly alarm: readonly string[]
}

export function registerAlarms(replay: Command): void {
  const command = replay
    .command('alarms')
    .description('print which alarms the steps of a run raise; exit code 1 if any is raised')
    .option(
      '--alarm <alarm>',
      "adds an alarm, or replaces one of the same name, as in a recipe: '{name: slow, metric: meanTokens, above: 6000, for: 3}'",
      repeatable,
      [],
    )
    .option('--json', 'print one JSON line for each alarm')
  withRun(command).action(alarms)
}

async function alarms(options: AlarmsOptions): Promise<void> {
  const given = options.alarm.map(alarmOf)
  await withLog(options, async recorded => {
    const { raised, alarms: known, steps, undecidedFrom } = await raisedAlarms(recorded, given)
    if (undecidedFrom !== null) {
      process.stderr.write(
        `step ${undecidedFrom} has groups that were never decided; alarms were checked only for the steps before it\n`,
      )
    }
    for (const one of raised) process.stdout.write(`${options.json ? jsonText(one) : line(one)}\n`)
    process.stderr.write(`${steps} steps, ${known} alarms: ${raised.length} raised\n`)
    process.exitCode = raised.length === 0 ? 0 : 1
  })
}

const paint = painter(process.stdout)
const line = ({ alarm, message }: RaisedAlarm) =>
  `${paint('red', escapeForTerminal(alarm))}  ${escapeForTerminal(message)}`

function alarmOf(text: string): Alarm {
  const refuse = (message: string) =>
    usageError(
      'bad_alarm',
      `--alarm '${text}': ${message}`,
      `write {name: …, metric: …, above: …, for: …}, or the name of a built-in alarm: ${knownAlarms.filter(name => name !== stalled.name).join(', ')}`,
    )
  let value: unknown
  try {
    value = parse(text)
  } catch (thrown) {
    throw refuse(asError(thrown).message)
  }
  const parsed = alarmSection.safeParse(typeof value === 'string' ? { name: value } : value)
  if (!parsed.success) {
    throw refuse(parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '))
  }
  if (parsed.data.name === stalled.name)
    throw refuse('a timer raises this alarm in a live run; no recorded step can raise it')
  return completeAlarm(parsed.data)
}
