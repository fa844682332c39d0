/**
 * Builds the command line of a server that a run starts: vLLM or SGLang, with the flags that Troupe's engine needs.
 *
 * in   a recipe, the model's directory and config, a port, a key, the interpreter of `troupe setup vllm` if it is there
 * out  program, arguments, environment
 * Invariant: pure. The recipe's fields decide what Troupe sets; `engine.launch.flags` cannot change it
 * (config/launchFlags.ts). The key is not part of the arguments where the server takes it from its environment, since
 * every user of the machine can read arguments.
 */
import { longestContext, type RecipeConfig } from '../../../config'
import { engineWidth } from '../../../config/devicePlan'
import { kvBytesOf, shapeOf } from '../../../config/estimate/modelShape'
import { precisionOf } from '../../../config/estimate/precision'
import { hardwareSection } from '../../../config/sections/hardware'

export interface LaunchPlace {
  readonly modelDirectory: string
  /** The model's transformers config. */
  readonly architecture: Readonly<Record<string, unknown>>
  readonly port: number
  readonly token: string
  /** Interpreter of the venv of `troupe setup vllm`; undefined if that venv is not there. */
  readonly vllmPython: string | undefined
}

export interface LaunchCommand {
  readonly command: readonly [string, ...string[]]
  readonly env: Readonly<Record<string, string>>
}

type Flags = Readonly<Record<string, string | number | boolean>>

/** Name under which a launched server serves the policy. */
const servedName = 'policy'
/** Number of adapters that a server holds at once: the newest version's, and the one before while its turns end. */
const adaptersAtOnce = 2
/** Number of tokens of the context that SGLang reserves, so that no request can use them. */
const sglangReserve = 6

/** Builds the command line of a recipe with `engine.launch`. */
export function launchCommand(config: RecipeConfig, place: LaunchPlace): LaunchCommand {
  const { kind, launch } = config.engine
  const { flags, env } = kind === 'sglang' ? sglang(config, place) : vllm(config, place)
  const given = { ...flags, ...launch!.flags }
  const program = launch!.command ?? defaultProgram(kind, place)
  const words = kind === 'sglang' ? [] : ['serve', place.modelDirectory]
  return {
    command: [...program, ...words, ...argumentsOf(given)] as unknown as LaunchCommand['command'],
    env: { ...env, ...launch!.env },
  }
}

function defaultProgram(kind: string, { vllmPython }: LaunchPlace): readonly string[] {
  if (kind === 'sglang') return ['python3', '-m', 'sglang.launch_server']
  return vllmPython === undefined ? ['vllm'] : [vllmPython, '-m', 'vllm.entrypoints.cli.main']
}

function vllm(config: RecipeConfig, { port, token, architecture }: LaunchPlace) {
  const { engine, train } = config
  const { engineMemoryShare, plan } = hardwareOf(config)
  const onCpu = engine.device.startsWith('cpu')
  // The base model is gone after sleep level 2, and only merged weights bring a whole model back.
  const adapters = train.lora !== undefined && !(plan?.kind === 'colocated' && plan.sleepLevel === 2)
  const flags: Flags = {
    host: '127.0.0.1',
    port,
    'served-model-name': servedName,
    dtype: precisionOf(engine.dtype, engine.device),
    'max-model-len': longestContext(config),
    'max-num-seqs': engine.maxSequences,
    'scheduling-policy': 'priority',
    'logprobs-mode': 'processed_logprobs',
    'enable-prompt-tokens-details': true,
    'enable-per-request-metrics': true,
    'enable-sleep-mode': plan?.kind === 'colocated' && !onCpu,
    ...(onCpu
      ? { 'enforce-eager': true }
      : { 'gpu-memory-utilization': engineMemoryShare, 'tensor-parallel-size': engineWidth(config) }),
    ...(adapters ? { 'enable-lora': true, 'max-lora-rank': train.lora!.rank, 'max-loras': adaptersAtOnce } : {}),
  }
  const gib = Math.ceil((engine.kvTokens * kvBytesOf(shapeOf(architecture))) / 2 ** 30)
  const env = {
    VLLM_API_KEY: token,
    VLLM_SERVER_DEV_MODE: '1',
    VLLM_NO_USAGE_STATS: '1',
    HF_HUB_OFFLINE: '1',
    ...(adapters ? { VLLM_ALLOW_RUNTIME_LORA_UPDATING: '1' } : {}),
    ...(onCpu
      ? {
          VLLM_TARGET_DEVICE: 'cpu',
          VLLM_CPU_KVCACHE_SPACE: String(gib),
          TORCHDYNAMO_DISABLE: '1',
          // By default vLLM binds its threads to cores, and several servers would all take the same cores.
          VLLM_CPU_OMP_THREADS_BIND: 'nobind',
          OMP_NUM_THREADS: String(engine.threads),
        }
      : {}),
  }
  return { flags, env }
}

function sglang(config: RecipeConfig, { modelDirectory, port, token }: LaunchPlace) {
  const { engine } = config
  const { engineMemoryShare, plan } = hardwareOf(config)
  const onCpu = engine.device.startsWith('cpu')
  const flags: Flags = {
    'model-path': modelDirectory,
    host: '127.0.0.1',
    port,
    // SGLang takes its key only from its arguments.
    'api-key': token,
    'served-model-name': servedName,
    dtype: precisionOf(engine.dtype, engine.device),
    'context-length': longestContext(config) + sglangReserve,
    'max-running-requests': engine.maxSequences,
    'incremental-streaming-output': true,
    'enable-memory-saver': plan?.kind === 'colocated' && !onCpu,
    ...(onCpu ? { device: 'cpu' } : { 'mem-fraction-static': engineMemoryShare, 'tp-size': engineWidth(config) }),
  }
  return { flags, env: { HF_HUB_OFFLINE: '1' } }
}

const hardwareOf = ({ hardware }: RecipeConfig) => hardware ?? hardwareSection.parse({})

/** `{a: 1, b: true, c: false}` as `--a 1 --b`. */
const argumentsOf = (flags: Flags): string[] =>
  Object.entries(flags).flatMap(([name, value]) =>
    value === false ? [] : value === true ? [`--${name}`] : [`--${name}`, String(value)],
  )
