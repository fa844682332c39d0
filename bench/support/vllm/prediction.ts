/**
 * Measures how well the simulator, calibrated on one recorded load of a vLLM server, predicts that load and others.
 *
 * out  for each load, which is recorded here as a run: makespan, mean time to the first token and preemptions, recorded
 * and simulated
 * Both steps go through `troupe simulate`: `--calibrate` fits the engine model to one run, `--run` simulates the
 * arrivals, lengths and tool times of another run on it. Of the other run's server the model gets only the size of the
 * KV cache.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { EngineModel, PolicyName, SimulationResult } from '../../../kernels'
import { runId } from '../../../messages/ids'
import { runDirectory } from '../../../runtime/runDirectory'
import { startLoad, type VllmLoad } from './load'
import { type BenchServer, blockTokens, maxBatchTokens, startBenchServer } from './server'

interface PredictedLoad extends VllmLoad {
  readonly name: string
  readonly policy: PolicyName
}

const contextTokens = 1024
const recorded: PredictedLoad = {
  ...{ name: 'recorded', policy: 'kv-headroom', groups: 6, groupSize: 4, promptWords: 40, contextTokens },
  // Rollouts of very different lengths, so that the cost of a step is measured with many sequences and with few.
  shape: { turns: [1, 6], newTokens: [16, 96], toolMs: [100, 600] },
}
const usual = { ...recorded, shape: { turns: [2, 4], newTokens: [24, 72], toolMs: [100, 600] } } as const
const fewer: PredictedLoad = { ...usual, name: 'fewer at once', groups: 2 }
const longer: PredictedLoad = {
  ...{ ...usual, name: 'longer', groups: 4, promptWords: 150 },
  shape: { turns: [2, 3], newTokens: [64, 160], toolMs: [100, 600] },
}
/** A load on a server with too little KV cache, under a policy that ignores the KV cache: the server preempts. */
const scarce: PredictedLoad = { ...usual, name: 'small KV', policy: 'static-async' }

const maxSequences = 24
const roomy = { contextTokens, maxSequences }
const scarceServer = { ...roomy, blocks: 2048 / blockTokens + 1 }

export interface Prediction {
  readonly load: string
  readonly makespanMs: number
  readonly recordedMakespanMs: number
  readonly ttftMsMean: number
  readonly recordedTtftMsMean: number
  readonly preemptions: number
  readonly recordedPreemptions: number
}

export async function predictions(): Promise<readonly Prediction[]> {
  const directory = mkdtempSync(join(process.env.TROUPE_BENCH_DIR ?? tmpdir(), 'troupe-bench-prediction-'))
  const file = (name: string) => join(directory, name)
  try {
    const played = [
      ...(await play(roomy, directory, [recorded, fewer, longer])),
      ...(await play(scarceServer, directory, [scarce])),
    ]
    const busOf = (one: Played) => ['--bus', `lmdb:${one.directory}`]
    const fitted = file('engine.json')
    const batch = ['--max-batch-tokens', `${maxBatchTokens}`]
    const fit = await troupe('--calibrate', run, ...busOf(played[0]!), '--engine-model', fitted, ...batch, '--json')
    process.stderr.write(`calibrated: ${fit}`)
    const model = JSON.parse(readFileSync(fitted, 'utf8')) as EngineModel
    const found: Prediction[] = []
    for (const one of played) {
      const { load, kvTokens, preemptions: recordedPreemptions } = one
      const own = file('own.json')
      // vLLM never assigns its null block to a sequence, so the model has one block less.
      writeFileSync(own, JSON.stringify({ ...model, kvTokens: kvTokens - blockTokens }))
      // The vLLM server obeys priorities under every policy.
      const asked = ['--engine-model', own, '--policy', load.policy, '--priority', 'yes', '--json']
      const said = await troupe('--run', run, ...busOf(one), ...asked, '--bound-tokens', `${contextTokens}`)
      const { makespanMs, ttftMsMean, preemptions, recordedMakespanMs, recordedTtftMsMean } = JSON.parse(said) as Said
      const times = { makespanMs, recordedMakespanMs, ttftMsMean, recordedTtftMsMean }
      found.push({ load: load.name, ...times, preemptions, recordedPreemptions })
      process.stderr.write(`${JSON.stringify(found.at(-1))}\n`)
    }
    return found
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

type Said = SimulationResult & Pick<Prediction, 'recordedMakespanMs' | 'recordedTtftMsMean'>

/** Name of every traced run; each is the only run on its bus. */
const run = 'bench-lmdb'

interface Played {
  readonly load: PredictedLoad
  readonly directory: string
  readonly ms: number
  readonly kvTokens: number
  readonly preemptions: number
}

/** Number of times that each load is run. The shortest run counts: during it the machine had the least other load. */
const repeats = 2

/** Starts a server and runs the loads on it, each as a run with its own log. */
async function play(
  options: Parameters<typeof startBenchServer>[0],
  directory: string,
  loads: readonly PredictedLoad[],
): Promise<readonly Played[]> {
  const server = await startBenchServer(options)
  try {
    // A warm-up run: first-time work of the server and of this process does not belong to a load.
    await playOne(server, { ...fewer, name: 'warm-up' }, join(directory, `warm-up ${options.blocks}`))
    const played = loads.map((): Played[] => [])
    for (let repeat = 0; repeat < repeats; repeat++) {
      for (const [k, load] of loads.entries()) {
        played[k]!.push(await playOne(server, load, join(directory, `${load.name} ${repeat}`)))
      }
    }
    return played.map(runs => runs.reduce((one, other) => (other.ms < one.ms ? other : one)))
  } finally {
    await server.stop()
  }
}

async function playOne(server: BenchServer, load: PredictedLoad, directory: string): Promise<Played> {
  const bus = `lmdb:${runDirectory(directory, runId(run)).log}`
  const before = await server.metrics()
  const started = await startLoad(server, load, load.policy, 1, bus)
  try {
    const { ms } = await started.step()
    const preemptions = (await server.metrics()).preemptions - before.preemptions
    process.stderr.write(`${load.name}: ${(ms / 1000).toFixed(1)} s, ${preemptions} preemptions\n`)
    return { load, directory, ms, kvTokens: before.kvTokens, preemptions }
  } finally {
    await started.close()
  }
}

async function troupe(...args: readonly string[]): Promise<string> {
  const bin = join(__dirname, '../../../cli/bin.js')
  const { stdout } = await promisify(execFile)(process.execPath, [bin, 'simulate', ...args], { maxBuffer: 2 ** 26 })
  return stdout
}
