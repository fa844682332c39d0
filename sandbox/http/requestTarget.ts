/**
 * Splits the target of a request, the second word of its first line, into path and query.
 *
 * in   a target as a client sent it        out  its path, with percent-escapes, and its query
 * Invariant: it never throws, unlike `new URL`, which refuses targets such as `//`. Such a target is a path that no
 * server has, so that it is answered like any other unknown path.
 */
export interface RequestTarget {
  readonly path: string
  readonly query: URLSearchParams
}

export function requestTarget(target = '/'): RequestTarget {
  // RFC 9112 §3.2.2: a client may send the whole URL.
  const [, path = '', query = ''] = /^(?:https?:\/\/[^/?#]+(?=\/))?([^?#]*)(?:\?([^#]*))?/is.exec(target) ?? []
  return { path, query: new URLSearchParams(query) }
}
