/** A llama of a few thousand parameters with a tokenizer of its own, made in a second. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { policyDirectory, pythonPath } from '../../runtime/python'

export interface TinyModel {
  readonly seed?: number
  /** Fields of its config, instead of those below. */
  readonly config?: Readonly<Record<string, unknown>>
  /** Default: the model has none. */
  readonly chatTemplate?: string
}

/** @param out a directory that is made; the files that it is made from lie beside it, as `out.corpus` and `out.jinja` */
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
