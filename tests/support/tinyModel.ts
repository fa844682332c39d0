/** Makes a llama model of a few thousand random parameters, with its own tokenizer. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { policyDirectory, pythonPath } from '../../runtime/python'

export interface TinyModel {
  readonly seed?: number
  /** Fields of the model's config that override those below. */
  readonly config?: Readonly<Record<string, unknown>>
  /** Text of the chat template. Default: the model has no template. */
  readonly chatTemplate?: string
}

/** Makes the model in the new directory `out`; writes its sources beside it, as `out.corpus` and `out.jinja`. */
export function makeTinyModel(out: string, { seed = 3, config = {}, chatTemplate }: TinyModel = {}): void {
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
  const args = ['-m', 'troupe_policy.model.init_model', '--out', out, '--spec', JSON.stringify(spec)]
  execFileSync(pythonPath(), args, { cwd: policyDirectory(), timeout: 120_000, stdio: ['ignore', 'ignore', 'pipe'] })
}
