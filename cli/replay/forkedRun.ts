/**
 * The live half of a fork: a run of its own whose trajectories begin in the middle, and go on with a real engine, real
 * tools and a real verifier.
 *
 * in   the facts that the forks share with their parent, weights        out  how every fork ended
 * Invariant: the parent's run is not touched. The coordinator refolds the shared facts as it does after a crash, and asks
 * for what has no answer: so a fork goes on exactly where a resume would have.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { announce } from '../../actors/announce'
import { dispatcher } from '../../actors/dispatcher'
import { joinEngine } from '../../actors/joinEngine'
import { joinExecutor } from '../../actors/joinExecutor'
import { oldestOpen } from '../../actors/owner'
import { graderSandbox } from '../../actors/ports/graderSandbox'
import { mathGrader } from '../../actors/ports/mathGrader'
import { pythonToolIn } from '../../actors/ports/pythonTool'
import { renderKey, renderPort } from '../../actors/ports/renderPort'
import { verifierKey, verifierPort } from '../../actors/ports/verifierPort'
import { scheduler } from '../../actors/scheduler'
import { verifier } from '../../actors/verifier'
import type { Message } from '../../messages'
import type { RunFinished, TrajectoryFact, WeightsPublished } from '../../messages/facts'
import { engineId, executorId, type PolicyVersion, type TrajectoryId } from '../../messages/ids'
import { systemEffects as fx } from '../../runtime/effects'
import { type HostSpec, openTroupe } from '../../runtime/embed'
import { startLocalEngine } from '../../runtime/engines/local'
import { TroupeError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal'
import { createLog } from '../../runtime/log'
import type { RecipeConfig } from '../../runtime/recipe'
import { startRenderer } from '../../runtime/rendererProcess'
import { openSandbox, pythonTool } from '../../sandbox'
import { collectedVersions } from '../doctor'
import type { RunContext } from '../runContext'
import type { ForkFacts } from './forkedFacts'
import { ownerOf } from './run'

export interface Weights {
  readonly directory: string
  readonly version: PolicyVersion
  readonly digest: string
}

export interface ForkedRunOptions {
  readonly context: RunContext
  readonly config: RecipeConfig
  readonly weights: Weights
  /** Of the run that is forked: its tokens mean nothing to another tokenizer. */
  readonly tokenizerDigest: string
  readonly forks: readonly ForkFacts[]
  readonly stopped: Promise<string>
  readonly onEnded: (ended: number, of: number) => void
}

const lookEveryMs = 100
/** On top of the deadline after which the coordinator itself gives a rollout up. */
const graceMs = 30_000

/** Resolves when every fork has ended and has its reward. @throws TroupeError cli.other_tokenizer, cli.forks_late */
export async function runForks(options: ForkedRunOptions): Promise<void> {
  const { context, config, weights } = options
  const log = createLog('replay', { level: process.env.TROUPE_LOG ?? 'warn' })
  const closers: (() => Promise<unknown>)[] = []
  let fail: (error: Error) => void = () => {}
  const failed = new Promise<never>((_, reject) => {
    fail = reject
  })
  failed.catch(() => {}) // seen through the race below
  const { bus, blobs, run } = context
  const troupe = await openTroupe({ bus, blobs, run, partitions: 1, fx, log, onFailed: fail })
  closers.push(() => troupe.close())
  const host = async <S, I extends Message, R>(spec: HostSpec<S, I, R>) => {
    const started = await troupe.host(spec)
    closers.push(() => started.close())
    return started
  }
  try {
    const template = config.model.from === 'directory' ? config.model.template : undefined
    const renderer = await startRenderer({
      modelDirectory: weights.directory,
      ...(template === undefined ? {} : { template }),
      log,
    })
    closers.push(() => renderer.close())
    const { digest: tokenizerDigest } = await renderer.describe()
    if (tokenizerDigest !== options.tokenizerDigest) throw otherTokenizer(weights.directory)
    const { journal } = troupe
    const announced = { run, config, resume: false, acceptCode: false, partitions: 1, tokenizerDigest, fx }
    await announce(journal, { ...announced, versions: collectedVersions() })
    await begin(journal, options)

    await host({
      behaviour: scheduler(config.scheduler.policy),
      feeds: [
        { topic: 'runs', from: 'oldest' },
        { topic: 'trajectories', from: 'latest' },
        { topic: 'turns', from: 'latest' },
        { topic: 'telemetry', from: 'latest' },
      ],
    })
    const { contextTokens } = config.limits
    const modelDirectory = weights.directory
    const id = engineId('local-0')
    const engine = await startLocalEngine({ id, modelDirectory, ...config.engine, contextTokens, version: -1, log })
    closers.push(() => engine.close())
    void engine.lost.then(fail)
    const joined = await joinEngine(troupe, engine)
    closers.push(() => joined.close())

    const sandbox = await openSandbox(config.tools.lanes === undefined ? {} : { lanes: config.tools.lanes })
    closers.push(() => sandbox.close())
    await host({ behaviour: dispatcher(), feeds: [{ topic: 'tool-calls', from: 'latest' }] })
    const tools = new Map([[pythonTool.name as string, pythonToolIn(sandbox, config.tools.memoryMb)]])
    const executor = await joinExecutor(troupe, { id: executorId('local-tools'), lanes: sandbox.lanes, tools })
    closers.push(() => executor.leave())
    const forGrading = graderSandbox()
    closers.push(() => forGrading.close())
    const { place, timeoutMs } = config.reward
    await host({
      behaviour: verifier(),
      feeds: [{ topic: 'verifications', from: 'latest' }],
      perform: verifierPort(new Map([['math', mathGrader(forGrading, { place, timeoutMs })]]), fx),
      keyOf: verifierKey,
    })
    await host({
      behaviour: ownerOf(config),
      feeds: [{ topic: 'trajectories', from: 'committed' }],
      owner: `${run}.${fx.unique()}`,
      perform: renderPort(renderer, fx),
      keyOf: renderKey,
      oldestOpen,
    })

    const over = await Promise.race([allEnded(journal, options), options.stopped, failed])
    const [outcome, reason] =
      over === undefined ? (['done', 'all forks have ended'] as const) : (['stopped', over] as const)
    const finished: RunFinished = { type: 'run.finished', at: fx.now(), run, outcome, reason, steps: 0, summary: {} }
    await journal.append([finished])
  } finally {
    for (const close of closers.reverse()) {
      await close().catch(thrown => log.warn({ err: thrown }, 'a part did not close cleanly'))
    }
  }
}

/** The claim stands first: its offset, 0, is the epoch of all that is shared. */
async function begin(journal: Journal, { weights, forks }: ForkedRunOptions): Promise<void> {
  const { directory, version, digest } = weights
  const url = pathToFileURL(directory).href
  const published: WeightsPublished = {
    type: 'weights.published',
    at: fx.now(),
    version,
    step: 0,
    url,
    digest,
    bytes: 0,
  }
  await journal.append(forks.flatMap(f => f.lineage))
  await journal.append([published])
  await journal.appendTo(0, { type: 'partition.claimed', at: fx.now(), partition: 0, owner: 'fork' })
  for (const { facts } of forks) await journal.append(facts)
}

async function allEnded(journal: Journal, { forks, config, onEnded }: ForkedRunOptions): Promise<undefined> {
  const open = new Set<TrajectoryId>(forks.flatMap(f => f.lineage.map(l => l.child)))
  const all = open.size
  const deadline = fx.elapsed() + config.rollout.deadlineMs + graceMs
  let at = 0
  while (open.size > 0) {
    const entries = await journal.read('trajectories', 0, at, 1024)
    const before = open.size
    for (const { message, offset } of entries) {
      at = offset + 1
      const fact = message as TrajectoryFact
      const ends = fact.type === 'reward.assigned' || (fact.type === 'rollout.finished' && fact.outcome === 'failed')
      if (ends) open.delete(fact.trajectory)
    }
    if (open.size < before) onEnded(all - open.size, all)
    if (entries.length > 0) continue
    if (fx.elapsed() > deadline) throw late(open.size)
    await sleep(lookEveryMs)
  }
  return undefined
}

const late = (open: number) =>
  new TroupeError('cli.forks_late', {
    boundary: 'engine',
    retriable: true,
    message: `${open} forks did not end in time`,
    hint: 'look at them: `troupe replay ls --purpose fork --status running`',
  })

const otherTokenizer = (directory: string) =>
  new TroupeError('cli.other_tokenizer', {
    boundary: 'cli',
    retriable: false,
    message: `the tokenizer in ${directory} is not the one that the run was started with: its tokens would mean other text`,
    hint: "give --model a checkpoint of the run's own",
  })
