/**
 * Computes reference log-probabilities with transformers in float32, which engines' log-probabilities are compared
 * with; and makes copies of a model with other weights.
 *
 * in   a model directory, contexts and the tokens that follow them
 * out  log p of each token, one forward pass a context
 * The process of a `forwardReference` answers every call until it is closed, since to import torch and transformers takes
 * 5 s of CPU time.
 * Invariant: the reference uses transformers and torch only, no code of troupe_policy.
 */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { pythonPath } from '../../runtime/python'

export interface Continued {
  readonly context: Int32Array
  readonly tokens: Int32Array
  readonly temperature: number
}

const forward = `
import json, sys, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(2)

@torch.inference_mode()
def answers(directory, continued):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    for each in continued:
        ids = torch.tensor([each["context"] + each["tokens"]])
        n = len(each["tokens"])
        logits = model(ids).logits[0, -n - 1 : -1] / each["temperature"]
        yield torch.log_softmax(logits, -1).gather(1, ids[0, -n:, None])[:, 0].tolist()

for line in sys.stdin:
    print(json.dumps(list(answers(**json.loads(line)))), flush=True)
`

const lineOf = (directory: string, continued: readonly Continued[]): string => {
  const asked = continued.map(({ context, tokens, temperature }) => ({
    context: [...context],
    tokens: [...tokens],
    temperature,
  }))
  return `${JSON.stringify({ directory, continued: asked })}\n`
}
const answerOf = (line: string) => (JSON.parse(line) as number[][]).map(each => Float32Array.from(each))

export type Forward = (
  directory: string,
  continued: readonly Continued[],
) => readonly Float32Array[] | Promise<readonly Float32Array[]>

export interface ForwardReference {
  readonly forward: Forward
  close(): Promise<void>
}

/** The process starts with the first call. Calls are answered one after the other. */
export function forwardReference(): ForwardReference {
  let started: ReturnType<typeof start> | undefined
  let latest: Promise<unknown> = Promise.resolve()
  const start = () => {
    const child = spawn(pythonPath(), ['-c', forward], { stdio: ['pipe', 'pipe', 'inherit'] })
    child.stdin.on('error', () => {}) // a process that has ended is reported by the answer that is missing
    return { child, ended: once(child, 'exit'), answers: createInterface(child.stdout)[Symbol.asyncIterator]() }
  }
  const ask: Forward = async (directory, continued) => {
    started ??= start()
    const { child, answers } = started
    child.stdin.write(lineOf(directory, continued))
    const { value, done } = await answers.next()
    if (done) throw new Error(`the forward pass of ${directory} ended without an answer; its output is on stderr`)
    return answerOf(value)
  }
  return {
    forward(directory, continued) {
      const answer = latest.then(() => ask(directory, continued))
      latest = answer.catch(() => {})
      return answer
    },
    async close() {
      started?.child.stdin.end()
      await started?.ended
      started = undefined
    },
  }
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
