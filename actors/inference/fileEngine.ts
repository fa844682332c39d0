/**
 * Engines that compute no model and ask no server: they repeat a recorded run's answers, or simulate an engine in real
 * time.
 *
 * in   the recipe's engine        out  how to start one of them
 * Invariant: the first engine that starts opens and reads the recorded log, or the file of the simulation, once for all
 * engines; if that fails, the next start tries again.
 */

import type { Engine } from '../../backends/engines/engine'
import type { OwnLog } from '../../backends/engines/recorded/log'
import { openRecording, RecordedTurns, type Recording, recordedEngine } from '../../backends/engines/recorded/recorded'
import { readEngineModel } from '../../backends/engines/simulated/engineModelFile'
import { simulatedEngine } from '../../backends/engines/simulated/simulated'
import { longestContext, type RecipeConfig } from '../../config'
import type { EngineModel } from '../../kernels'
import type { EngineId } from '../../messages/ids'
import type { Log } from '../../runtime/log'
import { modelTraits } from './modelTraits'
import type { SharedRenderer } from './sharedRenderer'

export interface FileEngineOptions extends Partial<OwnLog> {
  readonly config: RecipeConfig
  readonly log: Log
}

export interface FileEngine {
  start(id: EngineId, modelDirectory: string): Promise<Engine>
  close(): Promise<void>
}

/**
 * Checks, before the run exists, that a simulated engine's model file can be read, or a recorded engine's log opened;
 * does nothing for other kinds of engines.
 * @throws TroupeError engine.no_recording (no such run), config.bad_engine (no valid address of a recording),
 * config.invalid (the model file)
 */
export async function checkFileEngine(options: FileEngineOptions): Promise<void> {
  const { kind, recording = '', modelFile = '' } = options.config.engine
  if (kind === 'simulated') readEngineModel(modelFile)
  if (kind === 'recorded') await (await openRecording(recording, ownLog(options), options.log)).close()
}

/**
 * Creates the recorded or the simulated engines. The result's `start` throws TroupeError: for a recording
 * engine.no_recording (no such run), engine.empty_recording, config.bad_engine (no valid address); for a simulation
 * config.invalid (the model file), engine.unfit (its KV cache is too small); for both config.no_vocabulary.
 */
export function fileEngine(options: FileEngineOptions, renderer: SharedRenderer): FileEngine {
  return options.config.engine.kind === 'recorded' ? recorded(options, renderer) : simulated(options, renderer)
}

function simulated({ config, log }: FileEngineOptions, renderer: SharedRenderer): FileEngine {
  const { modelFile = '', turnTokens, updateMs, speed = 1 } = config.engine
  const contextTokens = longestContext(config)
  let model: EngineModel | undefined
  return {
    async start(id, modelDirectory) {
      if (model === undefined) {
        model = readEngineModel(modelFile)
        log.info(
          { model: model.name, file: modelFile, speed },
          'engines are simulated: the tokens that they generate mean nothing',
        )
      }
      const { vocabulary } = await modelTraits(modelDirectory)
      return simulatedEngine({
        ...{ id, model, vocabulary, contextTokens, medianTokens: turnTokens, updateMs, speed },
        priority: config.scheduler.policy === 'kv-headroom',
        decode: tokens => renderer.decode(tokens),
      })
    },
    close: async () => {},
  }
}

function recorded(options: FileEngineOptions, renderer: SharedRenderer): FileEngine {
  const { config, log } = options
  const { kvTokens, blockTokens, maxSequences, recording = '', speed } = config.engine
  const contextTokens = longestContext(config)
  let opened: Promise<{ readonly recording: Recording; readonly turns: RecordedTurns }> | undefined

  async function open() {
    const opening = await openRecording(recording, ownLog(options), log)
    const turns = await RecordedTurns.of(opening.journal).catch(async thrown => {
      await opening.close()
      throw thrown
    })
    log.info({ run: turns.run, turns: turns.size }, 'engines answer from a recorded run')
    return { recording: opening, turns }
  }

  return {
    async start(id, modelDirectory) {
      opened ??= open()
      const { turns } = await opened.catch(thrown => {
        opened = undefined
        throw thrown
      })
      const { vocabulary } = await modelTraits(modelDirectory)
      return recordedEngine({
        ...{ id, turns, vocabulary, contextTokens, blockTokens, maxSequences },
        kvTokens: Math.max(kvTokens, contextTokens),
        decode: tokens => renderer.decode(tokens),
        ...(speed === undefined ? {} : { speed }),
      })
    },
    async close() {
      await (await opened?.catch(() => undefined))?.recording.close()
    },
  }
}

const ownLog = ({ run, bus, blobs, directory }: Partial<OwnLog>): OwnLog | undefined =>
  run && bus && blobs && directory ? { run, bus, blobs, directory } : undefined
