/** Older schema versions: lifted a step at a time, or refused. The steps here are examples; ours are checked to be complete. */
import { Packr } from 'msgpackr'
import { decode, MessageError, missingSteps, shapes, type UpcastTable, upcast, upcasts } from '../../messages'
import type { Schema } from '../../messages/codec'

const packr = new Packr({ useRecords: false })

/**
 * A fact whose schema changed twice: version 2 added the unit of the wait, version 3 the token ids, for which older
 * records have none.
 */
const steps: UpcastTable = {
  'wait.measured': {
    1: ({ wait, ...rest }) => ({ ...rest, waitMs: Number(wait) * 1000 }),
    2: value => ({ ...value, tokens: new Uint8Array() }),
  },
}
const schema: Schema = {
  shapes: { 'wait.measured': { version: 3, fields: { at: 'number', waitMs: 'number', tokens: 'i32' } } },
  upcasts: steps,
}
const record = (version: string, value: object) => ({
  headers: { type: 'wait.measured', version },
  value: packr.pack({ type: 'wait.measured', ...value }),
})
const tokens = Buffer.from(Int32Array.from([1, 2]).buffer)

test('a record of every older version reads as one of the current version', () => {
  const current = { type: 'wait.measured', at: 5, waitMs: 1500, tokens: new Int32Array() }
  expect(decode(record('1', { at: 5, wait: 1.5 }), schema)).toEqual(current)
  expect(decode(record('2', { at: 5, waitMs: 1500 }), schema)).toEqual(current)
  expect(decode(record('3', { at: 5, waitMs: 1500, tokens }), schema)).toEqual({
    ...current,
    tokens: Int32Array.from([1, 2]),
  })
})

test('what a step returns is checked like any other record', () => {
  expect(() => decode(record('2', { at: 'noon', waitMs: 1 }), schema)).toThrow(
    expect.objectContaining({ code: 'codec.bad_shape', where: 'at' }),
  )
})

test('a record of a newer version is refused by both numbers', () => {
  expect(() => decode(record('4', { at: 5 }), schema)).toThrow(
    expect.objectContaining({ code: 'codec.newer_version', message: expect.stringMatching(/version 4.*up to 3/) }),
  )
})

test('a step that is missing or that throws is a MessageError, with the version it was to lift from', () => {
  const without = { ...schema, upcasts: { 'wait.measured': { 1: steps['wait.measured']![1]! } } }
  expect(() => decode(record('1', { at: 5, wait: 1 }), without)).toThrow(
    /wait.measured has no upcast from schema version 2/,
  )
  const failing = () => {
    throw new TypeError('unexpected')
  }
  const run = () => upcast('wait.measured', 2, {}, 3, { 'wait.measured': { 2: failing } })
  expect(run).toThrow(MessageError)
  expect(run).toThrow(expect.objectContaining({ cause: expect.any(TypeError) }))
})

test('a step leaves the value that it is given as it was', () => {
  const value = Object.freeze({ at: 5, wait: 1 })
  expect(upcast('wait.measured', 1, value, 3, steps)).toMatchObject({ waitMs: 1000 })
  expect(value).toEqual({ at: 5, wait: 1 })
})

test('every older version of every message has its step', () => {
  const versions = Object.fromEntries(Object.entries(shapes).map(([type, { version }]) => [type, version]))
  expect(missingSteps(versions, upcasts)).toEqual([])
  expect(missingSteps({ 'wait.measured': 4 }, steps)).toEqual(['wait.measured@3'])
})
