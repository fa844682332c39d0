/**
 * `troupe control RUN pause|resume|drain|abort`: sends an order to a run, and waits until the run's log confirms it.
 *
 * in   a run on lmdb or Kafka        out  one line with the result; with --json, one JSON line
 * Exit codes: 0 if the run confirmed the order, or if no process of the run lives and the order (pause or resume) will
 * take effect when the run is resumed; 1 if the run did not confirm within --wait seconds. It may still obey later.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Argument, type Command } from 'commander'
import type { ControlRun } from '../messages/commands'
import type { ControlObeyed, ControlOrder } from '../messages/facts'
import { openLog, type RecordedRun } from '../replay/log/recordedRun'
import { standingOfRun } from '../replay/why/whyRun'
import { orders, writeOrder } from '../runtime/control/orderFiles'
import { systemEffects } from '../runtime/effects'
import { TroupeError } from '../runtime/errors'
import { openRun } from '../runtime/openRun'
import { placeOptions, withBus, withDirectory } from './options/busOptions'
import { wholeNumber } from './options/readers'

interface ControlOptions {
  readonly bus: string
  readonly dir?: string
  readonly reason: string
  readonly wait: number
  readonly json?: boolean
}

const lookEveryMs = 200
const mostWait = 3600

export function registerControl(program: Command): void {
  const command = program
    .command('control <run>')
    .description('pause, resume, drain or abort a run')
    .addArgument(new Argument('<order>', orderHelp).choices(orders))
    .option('--reason <text>', 'reason, for the log and for whoever asks why the run waits', '')
    .option('--wait <seconds>', 'time to wait until the run obeys', wholeNumber(0, mostWait), 30)
    .option('--json', 'print one JSON line')
  withDirectory(withBus(command)).action(control)
}

const orderHelp =
  'pause: start no turn and no step, request no new rollouts, and stop the clocks of deadlines; ' +
  'resume: cancel a pause or a drain; drain: end after the steps whose rollouts are requested already; ' +
  'abort: end at once'

async function control(run: string, order: ControlOrder, options: ControlOptions): Promise<void> {
  const { reason, wait, json } = options
  const recorded = await openLog({ bus: options.bus, run, ...(options.dir === undefined ? {} : { dir: options.dir }) })
  try {
    const standing = await standingOfRun(recorded)
    if (standing === 'finished') throw refused(`run '${run}' is over`, 'to continue it: train RECIPE --resume')
    const isGone = standing === 'crashed' || standing === 'stopped'
    if (isGone && (order === 'drain' || order === 'abort'))
      throw refused(
        `no process of run '${run}' lives, so there is nothing to ${order}`,
        'to continue it: train RECIPE --resume',
      )
    const { next } = await recorded.bus.offsets(`troupe.${recorded.run}.runs`, 0)
    const command: ControlRun = {
      ...{ type: 'run.control', at: systemEffects.now(), id: systemEffects.unique(), order },
      reason: reason.slice(0, mostReason),
    }
    await send(recorded, command, options)
    const obeyed = isGone ? undefined : await obeyedWithin(recorded, command.id, next, wait * 1000)
    const state = obeyed !== undefined ? 'obeyed' : isGone ? 'waits for a resume' : 'not taken up yet'
    if (json) process.stdout.write(`${JSON.stringify({ type: 'control', run, order, id: command.id, state })}\n`)
    else process.stdout.write(`${textOf(run, order, state, wait, placeOptions(options))}\n`)
    process.exitCode = obeyed === undefined && !isGone ? 1 : 0
  } finally {
    await recorded.close()
  }
}

const mostReason = 1000

/** Sends the order. On lmdb only the run's own process may write to the log, so the order goes into a file for it. */
async function send({ bus, files, run }: RecordedRun, command: ControlRun, options: ControlOptions): Promise<void> {
  if (bus.kind === 'lmdb') return writeOrder(files.root, command)
  const opened = await openRun(options.bus, run, 'write', options.dir)
  try {
    await opened.journal.append([command])
  } finally {
    await opened.bus.close()
  }
}

async function obeyedWithin(
  recorded: RecordedRun,
  id: string,
  from: number,
  ms: number,
): Promise<ControlObeyed | undefined> {
  const deadline = systemEffects.elapsed() + ms
  let place = { topic: 'runs' as const, partition: 0, offset: from }
  let found: ControlObeyed | undefined
  for (;;) {
    const end = await recorded.scanFrom(place, ({ message }) => {
      if (message.type === 'control.obeyed' && message.id === id) found = message
    })
    place = { ...place, offset: end.offset }
    if (found !== undefined || systemEffects.elapsed() >= deadline) return found
    await sleep(lookEveryMs)
  }
}

const done: Readonly<Record<ControlOrder, string>> = {
  pause: 'is paused: it starts no turn and no step, and requests no rollouts',
  resume: 'continues',
  drain: 'ends once the steps whose rollouts are requested already are over',
  abort: 'ends now',
}

function textOf(run: string, order: ControlOrder, state: string, wait: number, place: string): string {
  switch (state) {
    case 'obeyed':
      return `run ${run} ${done[order]}${order === 'pause' ? `; to continue: npx troupe control ${run} resume${place}` : ''}`
    case 'waits for a resume':
      return `no process of run ${run} lives; the order takes effect when the run is resumed`
    default:
      return `run ${run} did not obey within ${wait} s; it will once its learner reads the order: npx troupe why ${run}${place}`
  }
}

const refused = (message: string, hint: string) =>
  new TroupeError('cli.run_over', { boundary: 'cli', retriable: false, message, hint })
