/**
 * The token of a server that demands one: taken from `#token=…&to=/VIEW` once, and kept for this tab only.
 * Invariant: the token leaves the address bar at once, and is sent in a header, never in an address.
 */
const key = 'troupe-token'

const found = /^#token=([A-Za-z0-9\-._~+/]+=*)(?:&to=(\/.*))?$/.exec(location.hash)
if (found !== null) {
  sessionStorage.setItem(key, found[1]!)
  history.replaceState(null, '', `${location.pathname}#${found[2] ?? '/'}`)
}

/** True if this tab was opened with a token. */
export const hasToken = (): boolean => sessionStorage.getItem(key) !== null

export function tokenHeaders(): Record<string, string> {
  const token = sessionStorage.getItem(key)
  return token === null ? {} : { authorization: `Bearer ${token}` }
}
