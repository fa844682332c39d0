/**
 * Shapes: the fields of a message as data, so that bytes from a bus can be checked against the message's interface.
 *
 * in   a TypeScript interface, as a type parameter
 * out  the type of the only table that the compiler accepts for it
 * Invariant: interface and table cannot drift apart. A field, a literal of a union or a `null` that only one of the two
 * has fails to compile. Only the table says which numbers are integers.
 */
type Scalar = 'string' | 'number' | 'int' | 'boolean' | 'i32' | 'f32'

/**
 * The kind of one field. int: a safe integer. i32, f32: Int32Array, Float32Array, which are little-endian bytes in a
 * record. oneOf: a union of literals. map: an object with any keys. unknown: any value, not checked.
 */
export type Kind =
  | Scalar
  | 'unknown'
  | { readonly oneOf: Readonly<Record<string, true>> }
  | { readonly each: Kind }
  | { readonly map: Kind }
  | { readonly fields: Fields }
  | { readonly nullable: Kind }
  | { readonly optional: Kind }

export interface Fields {
  readonly [field: string]: Kind
}

/**
 * Kinds that fit a field of type T. A union of literals needs every member in its table: a missing one fails to
 * compile.
 */
type KindOf<T> = unknown extends T
  ? 'unknown'
  : null extends T
    ? { readonly nullable: KindOf<Exclude<T, null>> }
    : [T] extends [Int32Array]
      ? 'i32'
      : [T] extends [Float32Array]
        ? 'f32'
        : [T] extends [string]
          ? // A branded string has no finite set of values, so an empty record fits it; a union of literals needs every key.
            Record<never, true> extends Record<T, true>
            ? 'string'
            : { readonly oneOf: Readonly<Record<T, true>> }
          : [T] extends [number]
            ? 'number' | 'int'
            : [T] extends [boolean]
              ? 'boolean'
              : [T] extends [readonly (infer E)[]]
                ? { readonly each: KindOf<E> }
                : string extends keyof T
                  ? { readonly map: KindOf<T[keyof T]> }
                  : { readonly fields: FieldsOf<T> }

export type FieldsOf<T> = {
  readonly [K in keyof T]-?: Record<never, never> extends Pick<T, K>
    ? { readonly optional: KindOf<Exclude<T[K], undefined>> }
    : KindOf<T[K]>
}

/** The table entry of a message type: the shape of every field except `type`. */
export type ShapeOf<M> = FieldsOf<Omit<M, 'type'>>
