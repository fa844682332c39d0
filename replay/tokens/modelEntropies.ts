/**
 * Computes the entropies of recorded tokens by a model's forward pass, in a Python process that ends with the call.
 *
 * in   sequences of tokens, a directory of weights
 * out  for each sequence, an entropy in nats of each token with mask 1, at the temperature of the sequence
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { endedHow, TroupeError } from '../../runtime/errors'
import { pythonEnvironment, torchPythonPath } from '../../runtime/python'
import { outputTail } from '../../runtime/secrets/outputTail'
import type { SampledSequence } from './sampledPieces'

const tailChars = 2000

/** Computes the entropies. @throws TroupeError replay.no_entropies, with the process's error output */
export async function modelEntropies(
  sequences: readonly SampledSequence[],
  directory: string,
  device?: string,
): Promise<readonly (readonly number[])[]> {
  const args = ['-m', 'troupe_policy.model.entropies', '--model', directory]
  const child = spawn(torchPythonPath(), [...args, ...(device === undefined ? [] : ['--device', device])], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: pythonEnvironment(),
  })
  const tail = outputTail([child.stderr], { chars: tailChars })
  child.stdin.on('error', () => {}) // a broken pipe is ignored here: the process's 'close' event reports its end
  const closed = new Promise<string>(resolve => {
    child.once('error', error => resolve(error.message))
    child.once('close', (code, signal) =>
      resolve(code === 0 ? '' : `its process ${endedHow(code, signal)}: ${tail().trim()}`),
    )
  })
  const found: (readonly number[])[] = []
  const reading = (async () => {
    for await (const line of createInterface({ input: child.stdout })) {
      const { id, entropies } = JSON.parse(line) as { readonly id: number; readonly entropies: readonly number[] }
      found[id] = entropies
    }
  })()
  try {
    for (const [id, { tokens, mask, temperature }] of sequences.entries()) {
      const line = JSON.stringify({ id, tokens: [...tokens], mask: [...mask], temperature })
      if (!child.stdin.write(`${line}\n`)) await Promise.race([once(child.stdin, 'drain'), closed])
    }
    child.stdin.end()
    const failed = await closed
    await reading
    if (failed !== '') throw noEntropies(directory, failed)
    return found
  } finally {
    child.kill()
  }
}

const noEntropies = (directory: string, why: string) =>
  new TroupeError('replay.no_entropies', {
    boundary: 'replay',
    retriable: false,
    message: `the model in ${directory} computed no entropies: ${why}`,
    hint: "if a token id is out of range: --with-model DIR with the run's vocabulary; if the device fails: --device cpu",
  })
