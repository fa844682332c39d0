/**
 * Estimates the size of a tool call's arguments in bytes, for the bounds of queues and records. Text counts one byte
 * per UTF-16 unit, which is exact for ASCII and therefore for most code; in UTF-8 a unit takes up to three bytes.
 */
export function argumentBytes(value: unknown): number {
  let bytes = 0
  const open: unknown[] = [value]
  while (open.length > 0) {
    const one = open.pop()
    if (typeof one === 'string') bytes += one.length + 2
    else if (ArrayBuffer.isView(one)) bytes += one.byteLength
    else if (typeof one === 'object' && one !== null) {
      for (const [name, field] of Object.entries(one)) {
        bytes += name.length + 4
        open.push(field)
      }
    } else bytes += 8
  }
  return bytes
}
