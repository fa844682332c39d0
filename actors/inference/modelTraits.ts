/** Reads the fields of a model's config.json that its engines must agree with. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { TroupeError } from '../../runtime/errors'

interface ModelConfig {
  readonly vocab_size?: number
  readonly tie_word_embeddings?: boolean
  readonly text_config?: ModelConfig
}

/**
 * Reads the model's traits: `vocabulary`, the number of rows of its embedding (may exceed the tokenizer's tokens), and
 * `tiedHead`, true if the output layer shares the embedding's weights. @throws TroupeError config.no_vocabulary
 */
export async function modelTraits(modelDirectory: string): Promise<{ vocabulary: number; tiedHead: boolean }> {
  const file = join(modelDirectory, 'config.json')
  const config = JSON.parse(await readFile(file, 'utf8')) as ModelConfig
  const { vocab_size: vocabulary = 0, tie_word_embeddings = false } = { ...config.text_config, ...config }
  if (Number.isInteger(vocabulary) && vocabulary > 0) return { vocabulary, tiedHead: tie_word_embeddings }
  throw new TroupeError('config.no_vocabulary', {
    boundary: 'config',
    retriable: false,
    message: `${file} has no field vocab_size with a positive whole number`,
    hint: 'set model.path to the directory of a causal language model',
  })
}
