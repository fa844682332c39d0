/**
 * An engine takes part in a run: the scheduler hears of it, and an inference actor drives it.
 *
 * in   an open engine, whatever stands behind it        out  engine.joined, what inference says of it, engine.left
 * Invariant: engine.joined is in the log before the engine is driven, engine.left after it is not any more. The engine
 * stays the caller's: it is neither watched nor closed here.
 */
import { type PolicyVersion, policyVersion } from '../messages/ids'
import type { Embedded } from '../runtime/embed'
import type { Engine } from '../runtime/engine'
import type { CloseOptions } from '../runtime/host'
import { fenced } from './fenced'
import { inference } from './inference'
import { inferenceKey, inferencePort } from './ports/inferencePort'

export interface JoinOptions {
  /** Samples under this policy already. Default: under none before `weights.published` was applied. */
  readonly version?: number
  /** Keep KV of older weights when new ones are loaded. Default false. */
  readonly keepKv?: boolean
}

export interface Joined {
  /** Stops driving it; who ends a run needs to say no more. */
  close(options?: CloseOptions): Promise<void>
  /** Stops driving it and says so: the scheduler gives its turns to others when they are asked again. */
  leave(reason: string): Promise<void>
}

/** Resolves when the engine is driven. Join it again only after `leave`. */
export async function joinEngine(
  { journal, fx, host }: Pick<Embedded, 'journal' | 'fx' | 'host'>,
  engine: Engine,
  options: JoinOptions = {},
): Promise<Joined> {
  const { id, capabilities } = engine
  const { kind, model, kvTokens, blockTokens, maxSequences, contextTokens, prefixSharing, prioritySign } = capabilities
  const joined = { kind, model, kvTokens, blockTokens, maxSequences, contextTokens, prefixSharing, prioritySign }
  await journal.append([{ type: 'engine.joined', at: fx.now(), engine: id, ...joined }])
  const driving = await host({
    behaviour: fenced(inference(id)),
    feeds: [
      { topic: 'learner', from: 'oldest' },
      { topic: 'assignments', from: 'latest' },
    ],
    perform: inferencePort(engine, options.keepKv ?? false, fx),
    keyOf: inferenceKey,
    tickMs: 1000,
  })
  if (options.version !== undefined) {
    const version: PolicyVersion = policyVersion(options.version)
    await driving.live
    await journal.append([{ type: 'weights.applied', at: fx.now(), engine: id, version, digest: '' }])
  }
  return {
    close: how => driving.close(how),
    async leave(reason) {
      await driving.close()
      await journal.append([{ type: 'engine.left', at: fx.now(), engine: id, reason }])
    },
  }
}
