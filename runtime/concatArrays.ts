/** Concatenates typed arrays in the given order. */
export function concatArrays<T extends Int32Array | Float32Array>(
  make: new (length: number) => T,
  parts: readonly T[],
): T {
  const whole = new make(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}
