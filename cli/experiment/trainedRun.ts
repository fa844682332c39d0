/**
 * A run of `troupe train` in a process of its own, for an experiment's arm.
 *
 * in   a recipe as YAML would say it, a seed, a directory        out  its steps and its summary, as --json prints them
 * Invariant: an arm's log stays where it is, so that a figure of the report can be looked up with `troupe replay`; an arm
 * that is there already, with the same recipe, is not run again.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { TroupeError } from '../../runtime/errors'
import { packageRoot } from '../../runtime/python'
import type { StepReport, summaryOf } from '../progress'

type Summary = ReturnType<typeof summaryOf>

export interface TrainedRun {
  readonly steps: readonly StepReport[]
  readonly summary: Summary
  /** Of the run: log, models. */
  readonly directory: string
}

const tailChars = 2000

/** @throws TroupeError cli.arm_failed with the end of what it said */
export async function trainedRun(name: string, recipe: object, directory: string): Promise<TrainedRun> {
  mkdirSync(directory, { recursive: true })
  const [yaml, kept] = [join(directory, `${name}.yaml`), join(directory, `${name}.jsonl`)]
  const text = stringify(recipe)
  if (existsSync(kept) && existsSync(yaml) && readFileSync(yaml, 'utf8') === text) {
    return parsed(readFileSync(kept, 'utf8'), join(directory, 'runs', name))
  }
  if (existsSync(join(directory, 'runs', name))) {
    throw failed(name, 'there is a run of that name from another recipe, or one that was cut off', directory)
  }
  writeFileSync(yaml, text)
  process.stderr.write(`${name}: training\n`)
  const args = ['train', yaml, '--json', '--run', name, '--bus', `lmdb:${directory}`]
  const child = spawn(process.execPath, [join(packageRoot(), 'cli/bin.js'), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { TROUPE_LOG: 'warn', ...process.env },
  })
  let [stdout, stderr] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    stdout += chunk
  })
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    stderr = (stderr + chunk).slice(-tailChars)
  })
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  // One that stopped for want of groups to learn from has been evaluated.
  const isEvaluated = code === 0 || stdout.includes('"outcome":"stopped"')
  if (!isEvaluated) throw failed(name, `it ended with ${code}: ${stderr.trim()}`, directory)
  writeFileSync(kept, stdout)
  return parsed(stdout, join(directory, 'runs', name))
}

function parsed(stdout: string, directory: string): TrainedRun {
  const lines = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { type: string })
  return {
    steps: lines.filter(line => line.type === 'step') as unknown as StepReport[],
    summary: lines.at(-1) as unknown as Summary,
    directory,
  }
}

const failed = (name: string, why: string, directory: string) =>
  new TroupeError('cli.arm_failed', {
    boundary: 'cli',
    retriable: false,
    message: `the arm ${name} of the experiment: ${why}`,
    hint: `look at its log under ${directory}/runs/${name}; give another --dir to begin anew`,
  })
