/**
 * Records the start or resume of a run, waits for its end, and checks that a process fits the run that it joins.
 *
 * in   the run's recipe, code, tokenizer and versions        out  run.started or run.resumed; later, run.finished
 * Invariant: a reader of the log finds the recipe that the run began with and, for its start and each resume, the
 * digests of recipe, code and tokenizer. The checks refuse a process with other code (unless `acceptCode` is true),
 * another recipe (a resume may change it: no check) or another tokenizer, and an executor whose code would run in
 * another environment (unless `acceptCode` is true).
 */

import type { RecipeConfig } from '../../config'
import { withReduction } from '../../config/estimate/reduction'
import type { RunFinished, RunStarted, ToolEnvironment } from '../../messages/facts'
import type { RunId } from '../../messages/ids'
import { codeDigest, dataDigest } from '../../runtime/digests'
import type { Effects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import type { Entry, Journal } from '../../runtime/journal/journal'
import type { Log } from '../../runtime/log'
import { environmentChanges } from '../../sandbox/environment'
import { fence } from '../ownership/fencing'
import { environmentOf } from '../tools/codeEnvironment'

export interface RunStartOptions {
  readonly run: RunId
  readonly config: RecipeConfig
  readonly resume: boolean
  readonly acceptCode: boolean
  readonly versions: Readonly<Record<string, string>>
  readonly partitions: number
  readonly tokenizerDigest: string
  readonly source?: string
  readonly fx: Effects
  readonly log?: Pick<Log, 'warn'>
}

/**
 * Writes run.started or run.resumed. Refuses a resume if the log has no such run, if the tokenizer differs from the
 * run's, or if the code differs and `acceptCode` is false.
 */
export async function recordRunStart(journal: Journal, options: RunStartOptions): Promise<void> {
  const { run, fx, partitions, tokenizerDigest } = options
  const config = withReduction(options.config)
  const recipeDigest = dataDigest(config)
  const toolEnvironment = await environmentHere(options)
  const common = {
    ...{ at: fx.now(), run, recipeDigest, codeDigest: codeDigest(), tokenizerDigest },
    ...(toolEnvironment === undefined ? {} : { toolEnvironment }),
  }
  if (!options.resume) {
    const { seed } = config
    const started = { recipe: config, seed, versions: options.versions, partitions: { trajectories: partitions } }
    const source = options.source === undefined ? {} : { source: options.source }
    await journal.append([{ type: 'run.started', ...common, ...started, ...source }])
    return
  }
  const started = await startOf(journal)
  if (started === undefined) {
    throw new TroupeError('bus.no_run', {
      boundary: 'bus',
      retriable: false,
      message: `cannot resume run '${run}': its log on this bus has no readable run.started`,
      hint: '`troupe replay runs` lists the runs of the bus; a run without run.started cannot be resumed: start it with --run NAME',
    })
  }
  checkTokenizer(started, tokenizerDigest)
  checkCode(started, options.acceptCode)
  const before = await lastEnvironment(journal)
  const changes = before && toolEnvironment ? environmentChanges(before, toolEnvironment) : []
  if (changes.length > 0)
    options.log?.warn({ changes }, `the code of run '${run}' now runs in another environment: ${changes.join(', ')}`)
  await journal.append([{ type: 'run.resumed', ...common }])
}

/**
 * Describes the environment (interpreter and packages) in which code that the model writes runs on this host. Logs a
 * warning and returns undefined if this host cannot run such code.
 */
async function environmentHere({ config, log }: RunStartOptions): Promise<ToolEnvironment | undefined> {
  try {
    const { digest, python, packages } = await environmentOf(config.tools)
    return { digest, python, packages }
  } catch (thrown) {
    // The role `tools` meets the same error where it opens the sandbox, which may be on another host.
    log?.warn({ error: thrown }, 'the interpreter of the tools does not answer here: its packages are not recorded')
    return undefined
  }
}

/** Returns the environment in the latest run.started or run.resumed that has one; undefined if none has one. */
async function lastEnvironment(journal: Journal): Promise<ToolEnvironment | undefined> {
  let last: ToolEnvironment | undefined
  for await (const { message } of entriesOfRuns(journal))
    if (message.type === 'run.started' || message.type === 'run.resumed') last = message.toolEnvironment ?? last
  return last
}

/**
 * Reads the run's `run.started`; undefined if it was not written yet. The alarm of a disk that was full while the
 * model was made may stand before it.
 */
export async function startOf(journal: Journal): Promise<RunStarted | undefined> {
  for await (const { message } of entriesOfRuns(journal)) if (message.type === 'run.started') return message
  return undefined
}

/** The entries that the topic `runs` holds now. */
async function* entriesOfRuns(journal: Journal): AsyncGenerator<Entry, void, undefined> {
  const { oldest, next } = await journal.offsets('runs', 0)
  for await (const entries of journal.readTo('runs', 0, oldest, next)) yield* entries
}

/**
 * Checks that this process has the code with which the run was started; passes if `acceptCode` is true.
 * @throws TroupeError config.other_code
 */
export function checkCode({ run, codeDigest: theirs }: RunStarted, acceptCode: boolean): void {
  if (acceptCode || theirs === codeDigest()) return
  throw new TroupeError('config.other_code', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' was started with other code than this process has`,
    hint: 'check out the code that started the run, or accept the difference with --accept-code',
  })
}

/** Checks that this process has the recipe with which the run was started. @throws TroupeError config.other_recipe */
export function checkRecipe({ run, recipe, recipeDigest }: RunStarted, stated: RecipeConfig): void {
  const own = withReduction(stated)
  // Earlier versions recorded `gradientReduction: auto` unresolved, so the recipe is compared in both forms.
  if ([own, stated].some(config => dataDigest(config) === recipeDigest)) return
  const fields = Object.entries(own)
    .filter(([field, value]) => dataDigest(value) !== dataDigest(recipe[field]))
    .map(([field]) => field)
  throw new TroupeError('config.other_recipe', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' was started with another recipe than this process has; fields that differ: ${fields.join(', ')}`,
    hint: 'give all processes of a run the same recipe; pass --set only to the learner that starts the run',
  })
}

/**
 * Checks that this process has the tokenizer and the chat template with which the run was started.
 * @throws TroupeError config.other_tokenizer
 */
export function checkTokenizer({ run, tokenizerDigest: theirs }: RunStarted, own: string): void {
  if (theirs === own) return
  throw new TroupeError('config.other_tokenizer', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' was started with another tokenizer or chat template than this process has`,
    hint: 'compare the model directories: one of the same name on another machine may hold another model',
  })
}

/**
 * Checks that code which a model writes runs on this host in the environment that the run's latest start or resume
 * recorded. Passes if `acceptCode` is true, or if the log records none (the learner's host cannot run the code).
 * @throws TroupeError config.other_environment, process.no_packages; SandboxError sandbox.no_python
 */
export async function checkEnvironment(journal: Journal, config: Pick<RecipeConfig, 'tools'>, acceptCode: boolean) {
  if (acceptCode) return
  const theirs = await lastEnvironment(journal)
  if (theirs === undefined) return
  const changes = environmentChanges(theirs, await environmentOf(config.tools))
  if (changes.length === 0) return
  throw new TroupeError('config.other_environment', {
    boundary: 'config',
    retriable: false,
    message: `the code of run '${journal.run}' runs in another environment than this executor has: ${changes.join(', ')}`,
    hint: 'install the versions of the run here (npx troupe setup), or accept the difference with --accept-code',
  })
}

export interface RunEnd {
  /** Resolves with `run.finished` when the run ends. */
  readonly finished: Promise<RunFinished>
  /** True if the run had ended before the watch began. */
  readonly over: boolean
  close(): Promise<void>
}

/**
 * Watches for `run.finished`, which the learner's process writes. A `run.finished` does not count if `run.resumed`
 * follows it, or if it lies before the offset `since`, at which this process resumes the run.
 */
export async function endOf(
  journal: Journal,
  group: string,
  onError: (error: Error) => void,
  since = 0,
): Promise<RunEnd> {
  const { oldest, next } = await journal.offsets('runs', 0)
  const counts = fence()
  let last: RunFinished | undefined
  for await (const entries of journal.readTo('runs', 0, oldest, next)) {
    for (const entry of entries) {
      const { message, offset } = entry
      if (!counts(entry) || offset < since) continue
      if (message.type === 'run.finished') last = message
      else if (message.type === 'run.resumed') last = undefined
    }
  }
  if (last !== undefined) return { finished: Promise.resolve(last), over: true, close: async () => {} }
  let end: (fact: RunFinished) => void = () => {}
  const finished = new Promise<RunFinished>(resolve => {
    end = resolve
  })
  const following = await journal.follow(
    { group, feeds: [{ topic: 'runs', from: 'oldest' }], onAssigned: async () => next, onError },
    async entries => {
      for (const entry of entries) if (counts(entry) && entry.message.type === 'run.finished') end(entry.message)
    },
  )
  return { finished, over: false, close: () => following.close() }
}
