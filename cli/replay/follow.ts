/**
 * `troupe replay follow [G|T]`: prints a run's facts as they are appended, one on each line, until Ctrl-C or, with
 * --until-end, the run's end.
 */
import type { Command } from 'commander'
import { factLine } from '../../replay/factLine'
import { checkFactType, followRun } from '../../replay/log/followRun'
import { placeText } from '../../replay/log/place'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { painter } from '../io/terminal'
import { wholeNumber } from '../options/readers'
import { type ReadOptions, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface FollowOptions extends ReadOptions {
  readonly json?: boolean
  readonly type?: readonly string[]
  readonly text?: string
  readonly fromNow?: boolean
  readonly untilEnd?: boolean
  readonly everyMs: number
}

const replaced = '  (does not count: another process had replaced its writer)'

export function registerFollow(replay: Command): void {
  const command = replay
    .command('follow [target]')
    .description(
      'print the facts that the log holds, then each new one: of a trajectory, of a group, or of the whole run',
    )
    .option('--type <types...>', 'print only facts of these types, such as turn.completed')
    .option('--text <text>', 'print only facts that contain this text; case does not matter')
    .option('--from-now', 'skip the facts that the log already holds')
    .option(
      '--until-end',
      'stop when the run ends; if it has ended and was not resumed, after the facts that the log holds',
    )
    .option('--every-ms <ms>', 'milliseconds between two polls of the log', wholeNumber(10, 60_000), 200)
    .option('--json', 'print one JSON line for each fact')
  withRun(command).action(follow)
}

async function follow(target: string | undefined, options: FollowOptions): Promise<void> {
  const { type: types, json, ...rest } = options
  types?.forEach(checkFactType)
  const stop = new AbortController()
  const onSignal = () => stop.abort()
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal)
  try {
    await withLog(options, async recorded => {
      const wants = target === undefined ? {} : { wants: resolveTarget(target, await trajectoriesOf(recorded)) }
      const following = { ...rest, ...wants, ...(types === undefined ? {} : { types }), signal: stop.signal }
      await followRun(recorded, following, (entry, counts) => {
        const { message } = entry
        const line = json
          ? jsonText({ place: placeText(entry), ...message, ...(counts ? {} : { counts }) })
          : `${paint('dim', placeText(entry).padEnd(22))} ${factLine(message)}${counts ? '' : paint('yellow', replaced)}`
        process.stdout.write(`${line}\n`)
      })
    })
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal)
  }
}

const paint = painter(process.stdout)
