/**
 * `npm run history -- --out FILE.tar.gz`: makes the saved run of the current version for `tests/histories/runs`: a log, two
 * checkpoints and the published weights of three steps of a very small model, about 100 KB.
 * Recipe and seeds are fixed: rollouts and weights are the same each time on one machine; times, and with them the archive, are not.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { runId } from '../messages/ids'
import { runDirectory } from '../runtime/runDirectory'
import { troupe } from './support/cli'
import { exitWith } from './support/exitWith'

const run = runId('history')
const settings = [
  ['model.config.hidden_size', 16],
  ['model.config.intermediate_size', 32],
  ['model.config.num_hidden_layers', 1],
  ['model.config.num_attention_heads', 2],
  ['model.config.num_key_value_heads', 2],
  ['model.vocabulary', 300],
  ['coldStart.demonstrations', 64],
  ['train.threads', 1],
  ['train.keepCheckpoints', 2],
  ['rollout.groupSize', 4],
  ['rollout.groupsPerStep', 2],
  ['selection.keep', 2],
  ['selection.minPositive', 1],
  ['selection.minNegative', 1],
  ['selection.rejectEqual', false],
  ['evaluation.problems', 2],
  ['limits.responseTokens', 48],
].flatMap(([path, value]) => ['--set', `${path}=${value}`])
/** What a resume does not need: the text for the tokenizer, the examples of the cold start that is over, lmdb's lock. */
const leftOut = ['corpus.jsonl', 'demonstrations', 'log/lock.mdb', 'log/writer.heartbeat']

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { out: { type: 'string' } } })
  if (values.out === undefined) {
    console.error('usage: npm run history -- --out FILE.tar.gz')
    return 2
  }
  const directory = mkdtempSync(join(tmpdir(), 'troupe-history-'))
  try {
    const args = [
      'train',
      'quickstart',
      '--bus',
      `lmdb:${directory}`,
      '--run',
      run,
      '--steps',
      '3',
      '--json',
      ...settings,
    ]
    const { code, stdout, stderr } = await troupe(args).done
    if (code !== 0) throw new Error(`the run ended with ${code}: ${stderr.slice(-4000)}`)
    const { root } = runDirectory(directory, run)
    for (const name of leftOut) rmSync(join(root, name), { recursive: true, force: true })
    const owner = ['--owner=0', '--group=0', '--numeric-owner', '--sort=name']
    execFileSync('tar', ['-czf', resolve(values.out), ...owner, '-C', directory, `runs/${run}`])
    console.log(stdout.trim().split('\n').at(-1))
    return 0
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

exitWith(main)
