/**
 * `troupe track RUN --to TRACKER`: sends a run's figures to an experiment tracker, or its traces to a receiver of
 * OpenTelemetry, live or from the log.
 *
 * in   a run's log
 * out  the tracker's files or requests to it; stderr: the run and tracker, the tracker's failures, the run's end
 * A later call continues after the points that the tracker has, so the tracker gets every point once; a receiver of
 * OpenTelemetry gets the same spans, with the same ids, again. Exit codes: 0 the tracker has all points of the log; 1
 * the tracker failed; 2 wrong usage; 130 and 143 on signals.
 */
import type { Command } from 'commander'
import { type TrackerAddress, trackerAddress, trackerForms } from '../config/trackerAddress'
import { openTracker, type PointTracker } from '../replay/tracking/openTracker'
import { exportTraces } from '../replay/tracking/otlp/exportTraces'
import { trackRun } from '../replay/tracking/runPoints'
import type { TroupeError } from '../runtime/errors'
import { stopSignals } from './io/signals'
import { withBus, withDirectory } from './options/busOptions'
import { usageError, withLog } from './replay/runOptions'

interface TrackOptions {
  readonly bus: string
  readonly dir?: string
  readonly to: string
  readonly follow: boolean
  readonly untilStdinEnds?: boolean
}

export function registerTrack(program: Command): void {
  const command = program
    .command('track <run>')
    .description("send a run's figures to an experiment tracker, or its traces to OpenTelemetry, live or from its log")
    .requiredOption('--to <tracker>', trackerForms)
    .option('--no-follow', 'end at the end of the log; default: follow a live run until it is over')
    .option(
      '--until-stdin-ends',
      'exit when stdin ends, and print only failures (for programs that start this command, such as train)',
    )
  withDirectory(withBus(command)).action(track)
}

type TracesAddress = Extract<TrackerAddress, { kind: 'otlp' }>

const track = (run: string, { to, follow, untilStdinEnds = false, ...where }: TrackOptions): Promise<void> => {
  const address = trackerAddress(to)
  if (typeof address === 'string')
    throw usageError(
      'bad_tracker',
      `--to ${to}: ${address}`,
      'write --to tensorboard:runs, or --to mlflow:http://localhost:5000',
    )
  return withLog({ ...where, run }, async recorded => {
    const signals = stopSignals()
    const over = new AbortController()
    void signals.stopped.then(() => over.abort())
    if (untilStdinEnds) process.stdin.once('end', () => over.abort()).resume()
    const say = (text: string) => void (untilStdinEnds || process.stderr.write(`${text}\n`))
    const options = { follow, signal: over.signal, onTrouble }
    try {
      say(`run ${recorded.run} → ${to}`)
      say(`run ${recorded.run}: ${await (address.kind === 'otlp' ? traces(address) : points(address))}`)
      process.exitCode = signals.exitCode()
    } finally {
      signals.release()
    }

    /** Sends the traces. Returns the text of the command's last line. */
    async function traces({ url, content }: TracesAddress): Promise<string> {
      const { spans, finished } = await exportTraces(recorded, { ...options, url, content })
      return `${finished?.outcome ?? 'not over'}, ${spans} spans`
    }
    /** Sends the points. Returns the text of the command's last line. */
    async function points(of: PointTracker): Promise<string> {
      const tracker = await openTracker(of, recorded.run)
      try {
        const end = await trackRun(recorded, tracker, options)
        return end === undefined ? 'not over' : `${end.outcome} after ${end.steps} steps`
      } finally {
        await tracker.close()
      }
    }
  })
}

const onTrouble = (error: TroupeError | undefined): void => {
  process.stderr.write(
    error === undefined ? 'tracker: it answers again\n' : `tracker: ${error.message}; trying again\n`,
  )
}
