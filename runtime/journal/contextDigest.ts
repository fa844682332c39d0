/**
 * Computes the digest of a context: sha256 over the bytes of its token ids, hex. `turn.asked` records it, and recorded
 * contexts are found by it.
 */
import { createHash } from 'node:crypto'
import { bytesOfTokens } from '../tokenBytes'

export const contextDigest = (context: Int32Array): string =>
  createHash('sha256').update(bytesOfTokens(context)).digest('hex')
