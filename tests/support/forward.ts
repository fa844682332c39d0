/**
 * Computes reference log-probabilities with transformers in float32, which engines' log-probabilities are compared
 * with; and makes copies of a model with other weights.
 *
 * in   a model directory, contexts and the tokens that follow them
 * out  log p of each token, one forward pass a context
 * Invariant: the reference uses transformers and torch only, no code of troupe_policy.
 */
import { execFileSync } from 'node:child_process'
import { pythonPath } from '../../runtime/python'

export interface Continued {
  readonly context: Int32Array
  readonly tokens: Int32Array
  readonly temperature: number
}

const forward = `
import json, sys, torch
from transformers import AutoModelForCausalLM
asked = json.load(sys.stdin)
torch.set_num_threads(2)
model = AutoModelForCausalLM.from_pretrained(asked["directory"], dtype=torch.float32).eval()
answers = []
with torch.inference_mode():
    for each in asked["continued"]:
        ids = torch.tensor([each["context"] + each["tokens"]])
        n = len(each["tokens"])
        logits = model(ids).logits[0, -n - 1 : -1] / each["temperature"]
        answers.append(torch.log_softmax(logits, -1).gather(1, ids[0, -n:, None])[:, 0].tolist())
json.dump(answers, sys.stdout)
`

export function forwardLogprobs(directory: string, continued: readonly Continued[]): readonly Float32Array[] {
  const asked = continued.map(({ context, tokens, temperature }) => ({
    context: [...context],
    tokens: [...tokens],
    temperature,
  }))
  const input = JSON.stringify({ directory, continued: asked })
  const said = execFileSync(pythonPath(), ['-c', forward], { input, encoding: 'utf8', timeout: 240_000 })
  return (JSON.parse(said) as number[][]).map(each => Float32Array.from(each))
}

const perturb = `
import shutil, sys, torch
from pathlib import Path
from safetensors.torch import load_file, save_file
source, target, share = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
target.mkdir(parents=True)
for file in source.iterdir():
    if file.suffix != ".safetensors" and file.is_file():
        shutil.copy(file, target)
generator = torch.Generator().manual_seed(7)
weights = load_file(source / "model.safetensors")
for name, each in weights.items():
    noise = torch.randn(each.shape, generator=generator) * each.float().std() * share
    weights[name] = (each.float() + noise).to(each.dtype)
save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
`

/** Copies a model and adds noise to each tensor, with `share` times the tensor's own standard deviation. */
export function perturbModel(source: string, target: string, share: number): void {
  execFileSync(pythonPath(), ['-c', perturb, source, target, String(share)], { timeout: 240_000 })
}

/** Returns the largest difference between two lists of logprobs, in nats; infinity if their lengths differ. */
export const farthest = (a: Float32Array, b: Float32Array): number =>
  a.length === b.length ? Math.max(0, ...a.map((x, i) => Math.abs(x - b[i]!))) : Number.POSITIVE_INFINITY
