/**
 * Checks what this machine must have for the run: a Python with torch, permission and free disk space where the run
 * writes, the engines' programs and API keys, the model file of simulated engines.
 *
 * in   a recipe, the directory of the runs        out  the faults
 * Invariant: nothing is written or started.
 */
import { accessSync, constants, existsSync, statfsSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { RecipeConfig } from '../../config'
import { architectureOf } from '../../config/estimate/architecture'
import { diskNeed } from '../../config/estimate/disk'
import { gib } from '../../config/estimate/figure'
import { innerCheckpointEveryOf } from '../../config/estimate/innerCheckpoints'
import { loraParameters, parametersOf, shapeOf } from '../../config/estimate/modelShape'
import { asError } from '../../runtime/errors'
import { torchPythonPath, vllmPythonPath } from '../../runtime/python'
import { error, type Fault, faultsOf } from './fault'
import { notThere, onPath, secretFaults } from './toolFaults'

export function machineFaults(config: RecipeConfig, directory: string | undefined, learns: boolean): readonly Fault[] {
  return [
    ...faultsOf('python', () => torchPythonPath()),
    ...engineFaults(config),
    ...(directory === undefined ? [] : placeFaults(resolve(directory), config, learns)),
  ]
}

function engineFaults({ engine }: RecipeConfig): readonly Fault[] {
  const faults: Fault[] = []
  const { kind, apiKey, modelFile, launch, urls } = engine
  if (apiKey !== undefined) faults.push(...secretFaults('engine.apiKey', apiKey))
  if (kind === 'simulated' && modelFile !== undefined && !existsSync(modelFile))
    faults.push(
      error(
        'config.no_file',
        'engine.modelFile',
        `${resolve(modelFile)} does not exist`,
        'write one with `troupe simulate --calibrate RUN`',
      ),
    )
  if (launch == null || urls.length > 0) return faults
  const [program = kind === 'sglang' ? 'python3' : 'vllm'] = launch.command ?? []
  const hasOwn = launch.command === undefined && kind === 'vllm' && vllmPythonPath() !== undefined
  if (!hasOwn && onPath(program) === undefined)
    faults.push(
      error(
        'engine.no_program',
        'engine.launch',
        notThere(program),
        `npx troupe setup ${kind}, or give engine.launch.command, or servers of yours: --engine ${kind}:URL`,
      ),
    )
  return faults
}

/**
 * Checks that the directory can be made and written; for a run that trains, also that its disk has room for checkpoints
 * and weights.
 */
function placeFaults(directory: string, config: RecipeConfig, learns: boolean): readonly Fault[] {
  let place = directory
  while (!existsSync(place) && dirname(place) !== place) place = dirname(place)
  try {
    accessSync(place, constants.W_OK | constants.X_OK)
  } catch (thrown) {
    const { code } = asError(thrown) as NodeJS.ErrnoException
    return [
      error(
        'config.not_writable',
        directory,
        `${code ?? 'error'}: ${place} cannot be written`,
        'give a directory that you may write: --bus lmdb:DIR; with a Kafka bus --dir DIR',
      ),
    ]
  }
  return learns && config.train.steps > 0 ? diskFaults(place, config) : []
}

function diskFaults(place: string, config: RecipeConfig): readonly Fault[] {
  const sizes = sizesOf(config)
  if (sizes === undefined) return []
  const { figures, bytes } = diskNeed(sizes, { ...config.train, innerCheckpointEvery: innerCheckpointEveryOf(config) })
  const { bavail, bsize } = statfsSync(place)
  const room = bavail * bsize
  if (bytes <= room) return []
  const sum = figures.map(({ what, value, formula }) => `${what} ${value.toFixed(1)} GiB = ${formula}`).join('; ')
  return [
    error(
      'config.disk_too_small',
      place,
      `the run keeps ${(bytes / gib).toFixed(1)} GiB, but the file system has room for ${(room / gib).toFixed(1)} GiB: ${sum}`,
      'lower train.keepCheckpoints or train.keepVersions, set train.publishedDtype=bfloat16, or name a directory on a larger disk: --bus lmdb:DIR; with a Kafka bus --dir DIR',
    ),
  ]
}

/** Number of the model's parameters, and of those that are trained; undefined if its config does not give them. */
function sizesOf(config: RecipeConfig): { readonly parameters: number; readonly trainable: number } | undefined {
  let architecture: Readonly<Record<string, unknown>>
  try {
    architecture = architectureOf(config)
  } catch {
    return undefined // modelFaults reports that the model cannot be read
  }
  const { model, train } = config
  if (typeof architecture.hidden_size !== 'number') return undefined
  const shape = shapeOf(model.from === 'random' ? { vocab_size: model.vocabulary, ...architecture } : architecture)
  const parameters = parametersOf(shape)
  return { parameters, trainable: train.lora === undefined ? parameters : loraParameters(shape, train.lora.rank) }
}
