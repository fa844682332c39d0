/**
 * How large the arguments of a tool call are, about: what bounds on queues and records are counted in.
 * Text counts three bytes a UTF-16 unit at most as UTF-8 and one at least: it is taken as it is, since code is ASCII.
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
