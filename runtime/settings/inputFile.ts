/**
 * Reads input files for simulations. An error names the file and the fault, and the line and the field if it has them.
 */
import { readFileSync } from 'node:fs'
import type { z } from 'zod'
import { asError, TroupeError } from '../errors'
import { parseConfig } from './resolveConfig'
import { withoutBom } from './withoutBom'

export const invalidInput = (message: string, cause?: unknown): TroupeError =>
  new TroupeError('config.invalid', {
    ...{ boundary: 'config', retriable: false, message, cause },
    hint: 'docs/scheduler.md describes the format of input files',
  })

/** Reads a text file. @throws TroupeError config.invalid if it cannot be read */
export function readText(path: string): string {
  try {
    return withoutBom(readFileSync(path, 'utf8'))
  } catch (thrown) {
    throw invalidInput(`${path} cannot be read: ${asError(thrown).message}`, thrown)
  }
}

/** Parses JSON. `where`: file and line, for the error. @throws TroupeError config.invalid */
export function parseJson(text: string, where: string): unknown {
  try {
    return JSON.parse(text)
  } catch (thrown) {
    throw invalidInput(`${where}: not valid JSON: ${asError(thrown).message}`, thrown)
  }
}

/** Checks a value against a schema. `where`: file and line, for the error. @throws TroupeError config.invalid */
export function checkInput<S extends z.ZodType>(schema: S, value: unknown, where: string): z.output<S> {
  try {
    return parseConfig(schema, value, where)
  } catch (thrown) {
    throw thrown instanceof TroupeError ? invalidInput(thrown.message, thrown) : thrown
  }
}
