/**
 * Checks bearer tokens. A judge's token is read from a file, once.
 *
 * in   a token or a file; an Authorization header      out  true if the header carries the token
 * Invariant: the token appears in no message, and the comparison takes the same time wherever the given token differs.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { SandboxError } from '../errors'

export type TokenCheck = (authorization: string | undefined) => boolean

const digest = (text: string) => createHash('sha256').update(text).digest()

/**
 * Reads a token from a file and returns its check. @throws SandboxError judge.bad_token if the file cannot be read or
 * has no token
 */
export function tokenCheck(file: string): TokenCheck {
  let token: string
  try {
    token = readFileSync(file, 'utf8').trim()
  } catch (cause) {
    throw badToken(`the token file ${file} could not be read: ${(cause as Error).message}`, cause)
  }
  if (token === '') throw badToken(`the token file ${file} is empty`)
  // Characters that RFC 6750 §2.1 allows after "Bearer ".
  if (!/^[A-Za-z0-9\-._~+/]+=*$/.test(token)) {
    throw badToken(`the token file ${file} must hold one token: letters, digits, -._~+/ and = at its end`)
  }
  return bearerCheck(token)
}

export function bearerCheck(token: string): TokenCheck {
  const expected = digest(token)
  return authorization => {
    const given = /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1] ?? ''
    return timingSafeEqual(digest(given), expected)
  }
}

function badToken(message: string, cause?: unknown): SandboxError {
  const hint = 'write a token with `openssl rand -hex 32 > FILE`'
  return new SandboxError('judge.bad_token', { retriable: false, message, hint, cause })
}
