/**
 * Recognises requests that a web page makes. A server on loopback without a token refuses them: any page that a user
 * visits can send requests to it, although the page cannot read the answers.
 *
 * Invariant: browsers send Origin with every POST of a page, and Sec-Fetch-Site with its GETs too. Programs send
 * neither; Sec-Fetch-Site is `none` if the user typed the address.
 */
import type { IncomingHttpHeaders } from 'node:http'

export function isOfWebPage({ origin, 'sec-fetch-site': site }: IncomingHttpHeaders): boolean {
  return origin !== undefined || (site !== undefined && site !== 'none')
}
