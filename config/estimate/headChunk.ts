/**
 * Size of the chunks in which the trainer applies the language-model head, as in
 * `policy/troupe_policy/model/logprobs.py`.
 *
 * in   the size of the vocabulary, the kind of device        out  tokens of a chunk
 * Invariant: the constants are read from the file that the trainer reads, so that estimate and trainer agree.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { positive } from '../sections/numbers'

const constants = z.strictObject({ leastRows: positive, cpuBytes: positive, cudaBytes: positive })
const file = join(__dirname, '../../policy/troupe_policy/model/head_chunk.json')

/** Number of tokens whose logits [tokens, vocabulary] are in memory at once. */
export function headChunkRows(vocabulary: number, device: 'cpu' | 'cuda'): number {
  const { leastRows, cpuBytes, cudaBytes } = constants.parse(JSON.parse(readFileSync(file, 'utf8')))
  return Math.max(leastRows, Math.floor((device === 'cpu' ? cpuBytes : cudaBytes) / (4 * Math.max(1, vocabulary))))
}
