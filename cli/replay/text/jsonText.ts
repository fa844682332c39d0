/**
 * A value as one line of JSON: token ids and logprobs as arrays of numbers, and whatever a terminal would act on as \u escapes,
 * which JSON reads as the same text. What a model wrote may be looked at without a pipe.
 */
import { escapeForTerminal } from '../../io/terminal'

export const jsonText = (value: unknown): string => escapeForTerminal(JSON.stringify(value, plainArrays) ?? 'undefined')

const plainArrays = (_key: string, value: unknown) =>
  value instanceof Int32Array || value instanceof Float32Array ? [...value] : value
