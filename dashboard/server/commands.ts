/** Builds the terminal commands that show the same data as a view of the page. */
import { quoteArgument } from './quoteArgument'

export interface CommandPlace {
  readonly bus: string
  readonly run: string
  readonly directory?: string | undefined
}

/** Returns `npx troupe …` with the options that find the run. */
export const commandOf = (place: CommandPlace, ...words: readonly string[]): string =>
  commandText([...words, ...busWords(place), '--run', place.run])

/** Returns the options that name the bus and the directory; none for the default bus. */
export function busWords({ bus, directory }: CommandPlace): readonly string[] {
  const where = bus === 'lmdb:.troupe' ? [] : ['--bus', bus]
  return directory === undefined ? where : [...where, '--dir', directory]
}

export const commandText = (words: readonly string[]): string =>
  ['npx', 'troupe', ...words].map(quoteArgument).join(' ')
