/**
 * Keeps the log of a chaos run after its directory and its broker are gone.
 *
 * in   the bus and the run, while the bus can still be read        out  a fixture, which `troupe replay import` reads
 * Invariant: a log that cannot be exported is reported and fails nothing.
 */
import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { troupe } from '../cli'

/** `directory`: working directory of the export, in which a run on Kafka has its `.troupe`. */
export async function keepLog(
  { bus, run, directory }: { readonly bus: string; readonly run: string; readonly directory: string },
  file: string,
  say: (text: string) => void,
): Promise<void> {
  mkdirSync(dirname(file), { recursive: true })
  const args = ['replay', 'export', '--all', '--format', 'fixture', '--bus', bus, '--run', run, '--out', file]
  const { code, stderr } = await troupe(args, {}, directory).done
  say(code === 0 ? `its log is in ${file}` : `its log could not be kept: ${stderr.slice(-500)}`)
}
