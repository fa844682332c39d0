/**
 * Resolves the model of a chat: its directory, the length of its context, and the engine that answers.
 *
 * in   the options of the command line (`ChatModelOptions`)        out  a recipe's configuration for a chat
 */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { checkContexts, positionsIn } from '../../actors/run/model'
import { type RecipeConfig, recipeSchema } from '../../config'
import { engineOverrides } from '../../config/engineAddress'
import { TroupeError } from '../../runtime/errors'
import { applyOverrides, parseConfig } from '../../runtime/settings/resolveConfig'

export interface ChatModelOptions {
  readonly model?: string
  readonly engine?: string
  readonly template: string
  readonly maxTokens?: number
  readonly turns?: number
  readonly temperature?: number
  readonly callsPerTurn?: number
  readonly seed?: number
  readonly set: readonly string[]
}

/** Default values of a chat, used if neither an option nor --set gives one. */
export const chatDefaults = { maxTokens: 2048, turns: 16, temperature: 0.7, callsPerTurn: 4, seed: 1 }

const askMs = 5000
/** Number of context tokens that are reserved for the conversation so far, beside those of the answer. */
const promptTokens = 4096
const longestContext = 32_768

/**
 * Builds a chat's configuration. --set overrides the defaults, --model, --template and --engine; --max-tokens, --turns,
 * --calls, --temperature and --seed override --set. The chat's temperature is `evaluation.temperature`, because that
 * field may be 0 and a rollout's may not.
 * @throws TroupeError cli.wrong_usage, config.invalid, config.bad_engine
 */
export async function chatConfig(options: ChatModelOptions): Promise<RecipeConfig> {
  const served = await servedModel(options.engine)
  const directory = options.model ?? served.directory
  if (directory === undefined) throw noModel(options.engine)
  const path = resolve(directory)
  if (!existsSync(join(path, 'config.json')))
    throw wrong(
      `${path} is not a model directory: it has no config.json`,
      'give a directory that transformers can load',
    )
  const positions = [positionsIn(path), served.contextTokens].filter(
    one => typeof one === 'number' && one > 0,
  ) as number[]
  const responseTokens = options.maxTokens ?? chatDefaults.maxTokens
  const contextTokens = Math.min(longestContext, promptTokens + responseTokens, ...positions)
  const template = templateOf(options.template)
  const plain = {
    name: 'chat',
    model: { from: 'directory', path, ...(template === undefined ? {} : { template }) },
    engine: { kvTokens: contextTokens, maxSequences: 1 },
    limits: {
      ...{ contextTokens, responseTokens, turns: chatDefaults.turns, callsPerTurn: chatDefaults.callsPerTurn },
      ...{ toolTimeoutMs: 10_000, toolResponseChars: 4000 },
    },
    rollout: { sampling: { temperature: chatDefaults.temperature } },
    seed: chatDefaults.seed,
    train: { steps: 0 },
  }
  const engine = options.engine === undefined ? [] : engineOverrides([options.engine])
  const laid = applyOverrides(plain, [...engine, ...options.set, ...flagOverrides(options)])
  const isGreedy = (laid as Tempered).rollout?.sampling?.temperature === 0
  const sampled = isGreedy ? applyOverrides(laid, ['rollout.sampling.temperature=1']) : laid
  const config = parseConfig(recipeSchema, sampled, 'the chat')
  checkContexts(config, path)
  const temperature = isGreedy ? 0 : config.rollout.sampling.temperature
  return { ...config, evaluation: { ...config.evaluation, temperature } }
}

interface Tempered {
  readonly rollout?: { readonly sampling?: { readonly temperature?: unknown } | null } | null
}

function flagOverrides(options: ChatModelOptions): readonly string[] {
  const fields: Readonly<Record<string, number | undefined>> = {
    'limits.responseTokens': options.maxTokens,
    'limits.turns': options.turns,
    'limits.callsPerTurn': options.callsPerTurn,
    'rollout.sampling.temperature': options.temperature,
    seed: options.seed,
  }
  return Object.entries(fields).flatMap(([path, value]) => (value === undefined ? [] : [`${path}=${value}`]))
}

/**
 * Returns the path of the chat template. `hermes` names Troupe's template, which describes tools. For `own` it returns
 * undefined, which selects the model's own template. Any other value is the path of a file.
 */
function templateOf(given: string): string | undefined {
  if (given === 'own') return undefined
  if (given === 'hermes') return join(__dirname, '../../recipes/templates/hermes.jinja')
  if (!existsSync(given))
    throw wrong(
      `the chat template ${resolve(given)} does not exist`,
      'give --template hermes, own, or an existing file',
    )
  return resolve(given)
}

/**
 * Asks a vllm, openai or sglang server for the model's context length, and for the model's directory when it lies on
 * this machine. Both are undefined for other engines, and when the server does not answer within `askMs`.
 */
async function servedModel(
  engine: string | undefined,
): Promise<{ readonly directory?: string | undefined; readonly contextTokens?: number | undefined }> {
  const url = engine === undefined ? undefined : /^(?:vllm|openai|sglang):(.+)$/.exec(engine)?.[1]
  if (url === undefined) return {}
  const reply = await fetch(`${url.replace(/\/+$/, '')}/v1/models`, { signal: AbortSignal.timeout(askMs) }).catch(
    () => undefined,
  )
  const body = (await reply?.json().catch(() => undefined)) as
    | { data?: readonly { root?: string; id?: string; max_model_len?: number }[] }
    | undefined
  const { root, id, max_model_len: contextTokens } = body?.data?.[0] ?? {}
  const directory = [root, id].find(one => typeof one === 'string' && existsSync(join(one, 'config.json')))
  return { directory, contextTokens }
}

const noModel = (engine: string | undefined) =>
  engine === undefined || engine === 'local'
    ? wrong('the chat has no model', 'give --model DIR; `troupe setup smollm2` makes a small one')
    : wrong(
        `no model directory is known for --engine ${engine}: the engine named none that exists on this machine`,
        'give --model DIR, for the tokenizer and the chat template of the model that the engine serves',
      )

export const wrong = (message: string, hint: string) =>
  new TroupeError('cli.wrong_usage', { boundary: 'cli', retriable: false, message, hint })
