/**
 * Parses addresses of engines that need no server: `recorded:RUN` and `simulated:FILE`.
 *
 * in   the values of --engine        out  assignments of recipe fields; undefined for engines of another kind
 * Invariant: the assignments name files and lmdb directories by absolute path, so a run records absolute paths.
 */
import { resolve } from 'node:path'
import { runId } from '../messages/ids'
import { asError, TroupeError } from '../runtime/errors'

export interface RecordingAddress {
  readonly run: string
  /** Address of the bus that holds the recording, as in --bus; absent: the bus of the run that uses it. */
  readonly bus?: string
}

const forms =
  'write recorded:RUN, recorded:RUN@lmdb:DIR or recorded:RUN@kafka://HOST:PORT for a log elsewhere, or simulated:FILE'

/**
 * Converts addresses to `--set` assignments; undefined if no address is of these two kinds.
 * @throws TroupeError config.bad_engine
 */
export function fileEngineOverrides(addresses: readonly string[]): readonly string[] | undefined {
  const kind = (['recorded', 'simulated'] as const).find(each => addresses.some(text => text.startsWith(`${each}:`)))
  if (kind === undefined) return undefined
  const [text, ...others] = addresses as readonly [string, ...string[]]
  if (others.length > 0) {
    throw bad(
      `expected one address for all ${kind} engines, found ${addresses.length} addresses`,
      '--set engine.count=N sets the number of engines',
    )
  }
  const place = text.slice(kind.length + 1)
  const set = (field: string, value: string) => [
    `engine.kind=${kind}`,
    'engine.launch=null',
    'engine.urls=[]',
    `engine.${field}=${JSON.stringify(value)}`,
  ]
  if (kind === 'recorded') return set('recording', absolute(recordingAddress(place)))
  if (place === '') throw bad(`'${text}' contains no file name`, forms)
  return set('modelFile', resolve(place))
}

/** Parses `engine.recording`: RUN, or RUN@BUS. @throws TroupeError config.bad_engine */
export function recordingAddress(text: string): RecordingAddress {
  const at = text.indexOf('@')
  const run = at < 0 ? text : text.slice(0, at)
  try {
    runId(run)
  } catch (thrown) {
    throw bad(`'recorded:${text}' contains no valid run name: ${asError(thrown).message}`, forms)
  }
  if (at < 0) return { run }
  const bus = text.slice(at + 1)
  if (/^(lmdb:.|kafka:\/\/.)/.test(bus)) return { run, bus }
  throw bad(
    `'recorded:${text}': ${JSON.stringify(bus)} is not a bus that keeps logs; expected lmdb:DIR or kafka://HOST:PORT`,
    forms,
  )
}

const absolute = ({ run, bus }: RecordingAddress): string =>
  bus === undefined ? run : `${run}@${bus.startsWith('lmdb:') ? `lmdb:${resolve(bus.slice('lmdb:'.length))}` : bus}`

const bad = (message: string, hint: string): TroupeError =>
  new TroupeError('config.bad_engine', { boundary: 'config', retriable: false, message, hint })
