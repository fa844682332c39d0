/**
 * The first and the last fact of a run.
 *
 * in   what a run is made of        out  run.started or run.resumed; later, run.finished
 * Invariant: whoever reads a run's log finds under which recipe, code and tokenizer its facts came about.
 */
import type { RunFinished } from '../messages/facts'
import type { RunId } from '../messages/ids'
import { codeDigest, dataDigest } from '../runtime/digests'
import type { Effects } from '../runtime/effects'
import { TroupeError } from '../runtime/errors'
import type { Journal } from '../runtime/journal'
import type { RecipeConfig } from '../runtime/recipe'

export interface AnnounceOptions {
  readonly run: RunId
  readonly config: RecipeConfig
  readonly resume: boolean
  readonly acceptCode: boolean
  readonly versions: Readonly<Record<string, string>>
  readonly partitions: number
  readonly tokenizerDigest: string
  readonly fx: Effects
}

/** Writes run.started or run.resumed; refuses to go on under other code than the run's, or another tokenizer. */
export async function announce(journal: Journal, options: AnnounceOptions): Promise<void> {
  const { run, config, fx, partitions, tokenizerDigest } = options
  const recipeDigest = dataDigest(config)
  const code = codeDigest()
  const common = { at: fx.now(), run, recipeDigest, codeDigest: code, tokenizerDigest }
  if (!options.resume) {
    await journal.append([
      {
        type: 'run.started',
        ...common,
        recipe: config,
        seed: config.seed,
        versions: options.versions,
        partitions: { trajectories: partitions },
      },
    ])
    return
  }
  const [first] = await journal.read('runs', 0, 0, 1)
  if (first?.message.type !== 'run.started') {
    throw new TroupeError('bus.no_run', {
      boundary: 'bus',
      retriable: false,
      message: `there is no run '${run}' to resume on this bus`,
      hint: '`troupe replay ls` lists the runs of a bus',
    })
  }
  const { message: started } = first
  if (started.tokenizerDigest !== tokenizerDigest) {
    throw new TroupeError('config.other_tokenizer', {
      boundary: 'config',
      retriable: false,
      message: `run '${run}' was started with another tokenizer or chat template`,
    })
  }
  if (started.codeDigest !== code && !options.acceptCode) {
    throw new TroupeError('config.other_code', {
      boundary: 'config',
      retriable: false,
      message: `run '${run}' was started by other code than this`,
      hint: 'check out the code that started it, or go on all the same with --accept-code',
    })
  }
  await journal.append([{ type: 'run.resumed', ...common }])
}

/** The run's end, from its topic. */
export async function endOf(
  journal: Journal,
  onError: (error: Error) => void,
  closers: (() => Promise<void>)[],
): Promise<RunFinished> {
  return new Promise((resolve, reject) => {
    journal
      .follow({ group: 'root', feeds: [{ topic: 'runs', from: 'latest' }], onError }, async entries => {
        for (const { message } of entries) if (message.type === 'run.finished') resolve(message)
      })
      .then(following => closers.push(() => following.close()), reject)
  })
}
