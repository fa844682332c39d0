/**
 * Compiles a shape to two functions, a reader and a writer, that check a message and convert its arrays.
 *
 * in   a value that should have the shape
 * out  reader: the same object, its bytes converted to typed arrays; writer: an object to pack, its typed arrays as
 *      bytes
 * Invariant: a value that passes has every field of its shape that is not optional, each of the right kind. Any other
 * value throws MessageError with the field's path. The reader keeps fields that the shape does not name. The writer
 * drops them from an object that has a typed array, itself or in a nested object (it builds such an object anew), and
 * keeps them elsewhere.
 *
 * The functions are generated code, one pair for each shape, so that V8 knows the layout of each field that they load.
 * A check that loops over the shape took 20 to 70 % of the time of unpacking; the generated check takes 2 to 7 %,
 * without the copies of arrays. The code is generated only from shapes, never from data. docs/decisions.md has the
 * libraries tried instead.
 */
import { MessageError } from './messageError'
import type { Fields, Kind } from './shape'

type Check = (value: unknown) => unknown

/**
 * Compiles the check of unpacked records of type `type`. The returned function replaces bytes by typed arrays in the
 * object that it is given, and returns that object.
 */
export function readerOf(type: string, fields: Fields): Check {
  return generate(type, (code, value) => {
    checkObject(code, fields, value, path(), 'read')
    return value
  })
}

/** Compiles the check of messages of type `type` before packing. The returned function leaves the message unchanged. */
export function writerOf(type: string, fields: Fields): Check {
  return generate(type, (code, value) => checkObject(code, fields, value, path(), 'write'))
}

type Way = 'read' | 'write'

/** Path of a field as JavaScript expressions: literals for names of fields, variables for indices and keys. */
type Path = readonly string[]
const path = (...steps: string[]): Path => steps

class Code {
  readonly lines: string[] = []
  #names = 0
  fresh(prefix: string): string {
    return `${prefix}${this.#names++}`
  }
  line(text: string): void {
    this.lines.push(text)
  }
  require(condition: string, at: Path, expected: string, value: string): void {
    this.line(`if (!(${condition})) fail([${at.join()}], ${JSON.stringify(expected)}, ${value})`)
  }
}

function generate(type: string, body: (code: Code, value: string) => string): Check {
  const code = new Code()
  const result = body(code, 'value')
  const source = `'use strict'; return value => { ${code.lines.join('\n')}\nreturn ${result} }`
  const fail = (at: readonly (string | number)[], expected: string, found: unknown): never => {
    const where = at.join('.')
    throw new MessageError(
      'codec.bad_shape',
      `${type}${where && ` field ${where}`}: expected ${expected}, found ${describe(found)}`,
      where,
    )
  }
  return new Function('fail', 'lift', 'lower', source)(fail, lift, lower) as Check
}

/** Emits the check of an object with known fields. Returns the JavaScript expression of the checked object. */
function checkObject(code: Code, fields: Fields, value: string, at: Path, way: Way): string {
  code.require(isObject(value), at, 'an object', value)
  const rebuilt: string[] = []
  let changed = false
  for (const [name, kind] of Object.entries(fields)) {
    const field = JSON.stringify(name)
    const local = code.fresh('f')
    code.line(`const ${local} = ${value}[${field}]`)
    if (isOptionalArray(kind)) {
      // An absent field is left out: as undefined it would add the bytes of its name to every record.
      code.line(`if (${local} !== undefined) {`)
      const present = checkScalar(code, kind.optional, local, [...at, field], way)
      if (way === 'read') code.line(`${value}[${field}] = ${present}`)
      code.line('}')
      rebuilt.push(`...(${local} === undefined ? undefined : { ${field}: ${present} })`)
      changed = true
      continue
    }
    const result = checkValue(code, kind, local, [...at, field], way)
    rebuilt.push(`${field}: ${result}`)
    if (result === local) continue
    changed = true
    if (way === 'read') code.line(`${value}[${field}] = ${result}`)
  }
  return changed && way === 'write' ? `{ ${rebuilt.join(', ')} }` : value
}

/**
 * Emits the check of one value. Returns the expression of the checked value, which is `value` itself if nothing is
 * converted.
 */
function checkValue(code: Code, kind: Kind, value: string, at: Path, way: Way): string {
  if (typeof kind === 'string') return checkScalar(code, kind, value, at, way)
  if ('oneOf' in kind) {
    const known = Object.keys(kind.oneOf)
    code.require(known.map(one => `${value} === ${JSON.stringify(one)}`).join(' || '), at, known.join(' or '), value)
    return value
  }
  if ('fields' in kind) return checkObject(code, kind.fields, value, at, way)
  if ('nullable' in kind) return unlessAbsent(code, `${value} === null`, kind.nullable, value, at, way)
  if ('optional' in kind) return unlessAbsent(code, `${value} === undefined`, kind.optional, value, at, way)
  if ('each' in kind) {
    code.require(`Array.isArray(${value})`, at, 'an array', value)
    const index = code.fresh('i')
    return eachElement(
      code,
      `let ${index} = 0; ${index} < ${value}.length; ${index}++`,
      index,
      kind.each,
      value,
      at,
      way,
    )
  }
  code.require(isObject(value), at, 'an object', value)
  if (kind.map === 'unknown') return value
  const key = code.fresh('k')
  return eachElement(code, `const ${key} of Object.keys(${value})`, key, kind.map, value, at, way)
}

function checkScalar(code: Code, kind: string, value: string, at: Path, way: Way): string {
  switch (kind) {
    case 'string':
    case 'number':
    case 'boolean':
      code.require(`typeof ${value} === '${kind}'`, at, `a ${kind}`, value)
      return value
    case 'int':
      code.require(`Number.isSafeInteger(${value})`, at, 'an integer', value)
      return value
    case 'i32':
    case 'f32': {
      const array = kind === 'i32' ? 'Int32Array' : 'Float32Array'
      const is = way === 'write' ? array : 'Uint8Array'
      const named = kind === 'i32' ? 'an Int32Array' : 'a Float32Array'
      const expected = way === 'write' ? named : `the bytes of ${named}`
      code.require(`${value} instanceof ${is} && ${value}.byteLength % 4 === 0`, at, expected, value)
      return way === 'write' ? `lower(${value})` : `lift(${array}, ${value})`
    }
    default:
      return value
  }
}

const isOptionalArray = (kind: Kind): kind is { readonly optional: 'i32' | 'f32' } =>
  typeof kind === 'object' && 'optional' in kind && (kind.optional === 'i32' || kind.optional === 'f32')

/**
 * Emits the check of a value that may be null or absent. Optional typed arrays never come here (checkObject handles
 * them); any other typed array in such a kind makes the compilation of the shape throw.
 */
function unlessAbsent(code: Code, absent: string, kind: Kind, value: string, at: Path, way: Way): string {
  code.line(`if (!(${absent})) {`)
  requireUnconverted(checkValue(code, kind, value, at, way), value, at)
  code.line('}')
  return value
}

/**
 * Emits the check of each element of an array or a map. An element that is itself a typed array makes the compilation
 * of the shape throw.
 */
function eachElement(code: Code, head: string, step: string, kind: Kind, value: string, at: Path, way: Way): string {
  const element = code.fresh('e')
  code.line(`for (${head}) { const ${element} = ${value}[${step}]`)
  requireUnconverted(checkValue(code, kind, element, [...at, step], way), element, at)
  code.line('}')
  return value
}

function requireUnconverted(result: string, value: string, at: Path): void {
  if (result !== value) throw new Error(`shape: the typed array at ${at.join('.')} must be a field of an object`)
}

const isObject = (value: string): string =>
  `typeof ${value} === 'object' && ${value} !== null && !Array.isArray(${value}) && !ArrayBuffer.isView(${value})`

/**
 * Describes a value for an error: its kind, its size, or the first 40 characters of a scalar. A record may hold
 * anything.
 */
function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (ArrayBuffer.isView(value)) return `${value.byteLength} bytes (${value.constructor.name})`
  if (Array.isArray(value)) return `an array of ${value.length}`
  if (typeof value === 'object') return 'an object'
  return `${typeof value} ${String(value).slice(0, 40)}`
}

if (new Uint8Array(Uint16Array.of(1).buffer)[0] !== 1) {
  throw new Error(
    'this machine is big-endian; messages hold arrays in little-endian order, so Troupe needs a little-endian one',
  )
}

type NumberArray = Int32Array | Float32Array
type NumberArrayType = { new (buffer: ArrayBuffer, byteOffset: number, length: number): NumberArray }

const lower = (array: NumberArray): Uint8Array => new Uint8Array(array.buffer, array.byteOffset, array.byteLength)

/**
 * Size in bytes up to which a typed array is put into a shared buffer, the slab; a larger one gets its own. A buffer
 * for each small array would take longer to allocate than the message takes to unpack.
 */
const sharedUpToBytes = 8 * 1024
const slabBytes = 64 * 1024
let slab = new Uint8Array(slabBytes)
let slabUsed = 0

/**
 * Copies bytes of any alignment to a typed array, whose `byteOffset` may be above 0 since small arrays share a buffer.
 */
function lift(type: NumberArrayType, bytes: Uint8Array): NumberArray {
  const size = bytes.byteLength
  if (size > sharedUpToBytes) {
    const own = new Uint8Array(size)
    own.set(bytes)
    return new type(own.buffer, 0, size / 4)
  }
  if (slabUsed + size > slabBytes) {
    slab = new Uint8Array(slabBytes)
    slabUsed = 0
  }
  const start = slabUsed
  slab.set(bytes, start)
  slabUsed += size
  return new type(slab.buffer, start, size / 4)
}
