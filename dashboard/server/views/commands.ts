/** Writes the terminal commands that show the same as a view of the page. */
import { quoteArgument } from './quoteArgument'

export interface CommandPlace {
  readonly bus: string
  readonly run: string
  readonly directory?: string | undefined
}

/** Returns `npx troupe …` with the options that find the run. */
export function commandOf({ bus, run, directory }: CommandPlace, ...words: readonly string[]): string {
  const where = bus === 'lmdb:.troupe' ? [] : ['--bus', bus]
  const files = directory === undefined ? [] : ['--dir', directory]
  return ['npx', 'troupe', ...words, ...where, ...files, '--run', run].map(quoteArgument).join(' ')
}
