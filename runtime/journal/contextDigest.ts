/** What `turn.asked` says of a context, and by which a recorded one is found: sha256 over the bytes of its token ids, hex. */
import { createHash } from 'node:crypto'
import { bytesOfTokens } from '../tokenBytes'

export const contextDigest = (context: Int32Array): string =>
  createHash('sha256').update(bytesOfTokens(context)).digest('hex')
