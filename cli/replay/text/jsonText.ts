/**
 * Formats a value as one line of JSON: token ids and logprobs as arrays of numbers, terminal control characters as \u
 * escapes, which JSON reads as the same text. Output of a model can thus be viewed safely on a terminal.
 */
import { escapeForTerminal } from '../../io/terminal'

export const jsonText = (value: unknown): string => escapeForTerminal(JSON.stringify(value, plainArrays) ?? 'undefined')

const plainArrays = (_key: string, value: unknown) =>
  value instanceof Int32Array || value instanceof Float32Array ? [...value] : value
