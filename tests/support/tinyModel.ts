/** Makes a llama model of a few thousand random parameters, with its own tokenizer. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runPython } from '../../backends/pythonProcess'

export interface TinyModel {
  readonly seed?: number
  /** Fields of the model's config that override those below. */
  readonly config?: Readonly<Record<string, unknown>>
  /** Text of the chat template. Default: the model has no template. */
  readonly chatTemplate?: string
}

/**
 * Makes the model in the new directory `out`; writes its sources beside it, as `out.corpus` and `out.jinja`. The process
 * that makes it is forked where that is possible, as those of engines and trainers are, so that a test file imports torch once.
 */
export async function makeTinyModel(
  out: string,
  { seed = 3, config = {}, chatTemplate }: TinyModel = {},
): Promise<void> {
  mkdirSync(join(out, '..'), { recursive: true })
  const corpus = `${out}.corpus`
  writeFileSync(corpus, 'what is 12 times 34?\n'.repeat(20))
  if (chatTemplate !== undefined) writeFileSync(`${out}.jinja`, chatTemplate)
  const sizes = {
    model_type: 'llama',
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    max_position_embeddings: 128,
  }
  const spec = {
    config: { ...sizes, ...config },
    corpus,
    vocabulary: 280,
    seed,
    ...(chatTemplate === undefined ? {} : { chatTemplate: `${out}.jinja` }),
  }
  const args = () => ['--out', out, '--spec', JSON.stringify(spec)]
  await runPython({ module: 'troupe_policy.model.init_model', args }, 120_000)
}
