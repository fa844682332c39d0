/**
 * `troupe replay fork T --from-turn K`: the first K turns as recorded, then live: what would have come of it otherwise?
 *
 * in   a recorded trajectory, weights that are still on disk        out  a run of its own; the value of each turn
 * With `--from-turn all` every turn is forked: the mean reward of the forks at K is the value of what came before turn K.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { toolSchemas } from '../../actors/tools/runTools'
import { builtInRewards } from '../../config'
import { policyVersion } from '../../messages/ids'
import { changedCells } from '../../replay/fork/changedCells'
import {
  type ForkFacts,
  type ForkResult,
  forkFacts,
  type TurnValue,
  turnsOf,
  turnValue,
} from '../../replay/fork/forkFacts'
import { runForks, type Weights } from '../../replay/fork/runForks'
import { nearestWeights, sampledUnder } from '../../replay/learning/publishedWeights'
import { type RecipeCode, recipeCode } from '../../replay/log/recipeCode'
import { configOf } from '../../replay/log/recordedConfig'
import { factsOf, type RecordedRun } from '../../replay/log/recordedRun'
import { resolveId, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { readTrajectories, type Trajectory } from '../../replay/trajectories/trajectory'
import { systemEffects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import { checkNewRun, openNewRun } from '../../runtime/openRun'
import { stopSignals } from '../io/signals'
import { escapeForTerminal, painter } from '../io/terminal'
import { numberFrom, wholeNumber } from '../options/readers'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, withRun } from './runOptions'

interface ForkOptions extends ReadOptions {
  readonly fromTurn: number | 'all'
  readonly times: number
  readonly seed?: number
  readonly temperature?: number
  readonly editToolResult?: string
  readonly policy?: number
  readonly model?: string
  readonly recipe?: string
  readonly as?: string
  readonly json?: boolean
}

const maxToolResultBytes = 256 * 1024

export function registerFork(replay: Command): void {
  const command = replay
    .command('fork <trajectory>')
    .description(
      'share the first turns of a trajectory and go on live: another seed, temperature, policy, tool or tool result',
    )
    .requiredOption('--from-turn <k>', 'turns before this one are shared; all: fork at every turn', turn)
    .option('--times <n>', 'forks of each turn', wholeNumber(1, 1024), 1)
    .option('--seed <n>', 'draw from this seed (default: derived from the parent)', wholeNumber(0, 2 ** 31 - 1))
    .option('--temperature <t>', "sample at this temperature (default: the parent's)", numberFrom(0))
    .option('--edit-tool-result <file>', 'what the model is shown instead of the tool result before the turn')
    .option(
      '--policy <version>',
      'go on with this version (default: the one that sampled the turn)',
      wholeNumber(0, 2 ** 31),
    )
    .option('--model <dir>', 'go on with these weights')
    .option('--recipe <name|file>', "with this recipe's tools and rewards (default: the run's own)")
    .option('--as <run>', 'name of the run of the forks')
    .option('--json', 'a JSON line a fork, last a summary')
  withRun(command).action(fork)
}

async function fork(asked: string, options: ForkOptions): Promise<void> {
  if (options.as !== undefined) checkNewRun(options.bus, options.as)
  const recorded = await openRecorded(options)
  const plan = await prepared(recorded, asked, options).finally(() => recorded.close())
  const { parent, code, parts, started, turns, run } = plan
  const at = parts.map(({ weights, turns: of }) => `${of.map(k => `turn ${k}`).join(', ')}, policy ${weights.version}`)
  process.stderr.write(`run ${run}: ${parent.id} forked at ${at.join('; ')}\n`)
  for (const { turn, call, recorded: was, now } of await changedCells(parent, Math.max(...turns), code)) {
    process.stderr.write(
      `turn ${turn}, call ${call} of the notebook says otherwise now: ${brief(was)} → ${brief(now)}; forks go on from that\n`,
    )
  }
  const context = await openNewRun(options.bus, run, options.dir)
  const signals = stopSignals()
  try {
    const { stopped } = signals
    const onEnded = (ended: number, of: number) => {
      if (process.stderr.isTTY) process.stderr.write(`\r${ended} of ${of} ended`)
    }
    await runForks({ context, code, parts, parent: started, stopped, onEnded })
    if (process.stderr.isTTY) process.stderr.write('\n')
  } finally {
    signals.release()
    await context.bus.close()
  }
  const results = await resultsOf({ ...options, run })
  print(plan, results, options.json === true)
  process.exitCode = signals.exitCode()
}

/** Turns whose forks go on with the same weights. */
interface Part {
  readonly weights: Weights
  readonly turns: number[]
  readonly forks: ForkFacts[]
}

async function prepared(recorded: RecordedRun, asked: string, options: ForkOptions) {
  const id = resolveId(asked, await trajectoriesOf(recorded))
  const [parent] = await readTrajectories(recorded, t => t === id)
  if (parent === undefined || turnsOf(parent) === 0)
    throw refusal('cli.no_turn', `${id} has no finished turn to fork at`)
  const code = recipeCode(await configOf(recorded), options.recipe)
  const tools = await toolsOf(parent, code, options.recipe)
  const turns = options.fromTurn === 'all' ? parent.texts.map((_, k) => k) : [options.fromTurn]
  const toolResult = options.editToolResult === undefined ? undefined : readToolResult(options.editToolResult)
  const at = systemEffects.now()
  const changes = {
    ...(options.seed === undefined ? {} : { seed: options.seed }),
    ...(options.temperature === undefined ? {} : { temperature: options.temperature }),
    ...(toolResult === undefined ? {} : { toolResult }),
    tools,
  }
  const { times } = options
  const { deadlineMs } = code.config.rollout
  const parts: Part[] = []
  for (const turn of turns) {
    const weights = await weightsOf(recorded, parent, turn, options)
    const part = parts.find(p => p.weights.directory === weights.directory)
    if (part === undefined) parts.push({ weights, turns: [turn], forks: [] })
    else part.turns.push(turn)
  }
  // Part after part is appended: a start order below one that was would be taken for a repetition.
  let order = 0
  for (const part of parts) {
    for (const turn of part.turns) {
      part.forks.push(forkFacts({ parent, parentRun: recorded.run, turn, times, ...changes, deadlineMs, order, at }))
      order += times
    }
  }
  const started = await recorded.started()
  const stamp = new Date(at).toISOString().replace(/\D/g, '').slice(0, 17)
  const run = options.as ?? `fork-${recorded.run}-${stamp}`
  return { parent, code, parts, started, turns, run, parentRun: recorded.run }
}

/** Tools that the forks may call: of another recipe all, else those of the parent, which must be there before anything is begun. */
async function toolsOf(parent: Trajectory, code: RecipeCode, given: string | undefined): Promise<readonly string[]> {
  const names = (await toolSchemas(code)).map(({ name }) => name)
  const { request } = parent
  const { reward } = code.config
  const rewards = [reward.name, ...Object.keys(reward.weights ?? {}), request.task.reward].filter(name => name !== '')
  const known = [...builtInRewards, ...Object.keys(code.recipe.rewards ?? {})]
  const lacking = [
    ...(given === undefined ? request.tools : [])
      .filter(name => !names.includes(name))
      .map(name => `the tool '${name}'`),
    ...rewards.filter(name => !known.includes(name)).map(name => `the reward '${name}'`),
  ]
  if (lacking.length === 0) return given === undefined ? request.tools : names
  throw new TroupeError('cli.no_code', {
    boundary: 'cli',
    retriable: false,
    message: `${lacking.join(' and ')} of ${request.trajectory} is code that no log holds`,
    hint: '--recipe FILE names the recipe that brings it',
  })
}

/** The version that sampled the turn, where its weights are kept; else the nearest that are, and that is said. */
async function weightsOf(
  recorded: RecordedRun,
  parent: Trajectory,
  at: number,
  options: ForkOptions,
): Promise<Weights> {
  if (options.model !== undefined) {
    const directory = resolve(options.model)
    if (!existsSync(join(directory, 'config.json')))
      throw refusal('cli.no_weights', `${directory} holds no config.json`)
    return { directory, version: policyVersion(options.policy ?? 0), digest: '' }
  }
  return nearestWeights(recorded, options.policy ?? sampledUnder(parent, at), options.policy !== undefined)
}

function readToolResult(file: string): string {
  try {
    if (statSync(file).size > maxToolResultBytes) {
      throw refusal('cli.too_large', `${file} is over ${maxToolResultBytes / 1024} KiB, more than any tool result`)
    }
    return readFileSync(file, 'utf8')
  } catch (thrown) {
    if (thrown instanceof TroupeError) throw thrown
    throw refusal('cli.cannot_read', `${file} cannot be read: ${asError(thrown).message}`)
  }
}

async function resultsOf({ bus, run, dir }: Pick<ReadOptions, 'bus' | 'run' | 'dir'>): Promise<readonly ForkResult[]> {
  const recorded = await openRecorded({
    bus,
    ...(run === undefined ? {} : { run }),
    ...(dir === undefined ? {} : { dir }),
  })
  try {
    const forked = await factsOf(recorded, 'runs', ['trajectory.forked'])
    const turnOf = new Map(forked.map(f => [f.child, f.turn]))
    return (await readTrajectories(recorded, () => true)).map(c => ({
      trajectory: c.id,
      turn: turnOf.get(c.id) ?? 0,
      outcome: c.finished?.outcome ?? 'running',
      reward: c.reward?.reward ?? null,
      turns: c.texts.length,
      answer: c.reward?.answer ?? '',
    }))
  } finally {
    await recorded.close()
  }
}

const paint = painter(process.stdout)
const brief = (text: string) => `'${escapeForTerminal(text).replace(/\s+/g, ' ').slice(0, 100)}'`

function print(
  { parent, parentRun, run, parts, turns }: Awaited<ReturnType<typeof prepared>>,
  results: readonly ForkResult[],
  json: boolean,
): void {
  const versionAt = (turn: number) => parts.find(p => p.turns.includes(turn))!.weights.version
  const values = turns.map(k => {
    const own = results.filter(r => r.turn === k)
    return { ...turnValue(k, own), policyVersion: versionAt(k) }
  })
  const reward = parent.reward?.reward ?? null
  if (json) {
    for (const result of results) process.stdout.write(`${jsonText(result)}\n`)
    const of = { trajectory: parent.id, run: parentRun, reward }
    // Each value has its own; null: they are several.
    const policyVersion = parts.length === 1 ? parts[0]!.weights.version : null
    process.stdout.write(`${jsonText({ type: 'summary', run, parent: of, policyVersion, values })}\n`)
    return
  }
  const lines = [
    `${escapeForTerminal(parent.id)} of ${parentRun}: reward ${reward ?? '–'}; its forks are run ${run}`,
    'turn  forks  mean reward  standard error  what the parent wrote there',
    ...values.map(v => valueLine(v, parent)),
  ]
  process.stdout.write(`${lines.join('\n')}\n`)
}

function valueLine(value: TurnValue, parent: Trajectory): string {
  const number = (n: number | null) => (n === null ? '–' : n.toFixed(3))
  const text = escapeForTerminal((parent.texts[value.turn] ?? '').replace(/\s+/g, ' ').trim())
  const shown = text.length > 70 ? `${text.slice(0, 69)}…` : text
  return `${String(value.turn).padStart(4)}  ${String(value.forks).padStart(5)}  ${number(value.mean).padStart(11)}  ${number(value.standardError).padStart(14)}  ${paint('dim', shown)}`
}

function turn(text: string): number | 'all' {
  if (text === 'all') return 'all'
  if (/^\d{1,6}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('It must be a turn, counted from 0, or all.')
}

const refusal = (code: string, message: string) =>
  new TroupeError(code, { boundary: 'cli', retriable: false, message, hint: '--model DIR takes weights from anywhere' })
