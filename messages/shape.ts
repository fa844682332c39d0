/**
 * Shapes: what a message's fields hold, as data, so that bytes from a bus can be checked against the types.
 *
 * in   a TypeScript interface (the type parameter)       out  the one table that the compiler takes for it
 * Invariant: a field, a literal of a union or a `null` that the interface has and the table has not fails to compile,
 * and the other way round. Only the difference between a number and an integer is the table's own.
 */
type Scalar = 'string' | 'number' | 'int' | 'boolean' | 'i32' | 'f32'

/**
 * int: a safe integer. i32, f32: Int32Array, Float32Array; in a record little-endian bytes. oneOf: a union of literals.
 * map: an object with keys of any name; `unknown` values are not looked into.
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

/** The kinds that a field of type T may be declared as. A literal union lists its members, so a new one fails to compile. */
type KindOf<T> = unknown extends T
  ? 'unknown'
  : null extends T
    ? { readonly nullable: KindOf<Exclude<T, null>> }
    : [T] extends [Int32Array]
      ? 'i32'
      : [T] extends [Float32Array]
        ? 'f32'
        : [T] extends [string]
          ? // A branded string has no finite set of values, so a record over it may be empty.
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

/** The table entry of a message type: every field but `type`. */
export type ShapeOf<M> = FieldsOf<Omit<M, 'type'>>
