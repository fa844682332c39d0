/**
 * A run of `troupe train` in a process of its own, for an experiment's arm.
 *
 * in   a recipe as YAML would say it, a seed, a directory        out  its steps and its summary, as --json prints them
 * Invariant: an arm's log stays where it is, so that a figure of the report can be looked up with `troupe replay`; an arm
 * that is there already, with the same recipe, is not run again, and one that was cut off goes on.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { stringify } from 'yaml'
import type { StepReport, summaryOf } from '../../replay/learning/progress'
import { TroupeError } from '../../runtime/errors'
import { packageRoot } from '../../runtime/python'
import { recordedArm } from './recordedArm'

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
  const isSame = existsSync(yaml) && readFileSync(yaml, 'utf8') === text
  if (existsSync(kept) && isSame) return parsed(readFileSync(kept, 'utf8'), join(directory, 'runs', name))
  if (existsSync(join(directory, 'runs', name)) && !isSame) {
    throw failed(name, 'there is a run of that name from another recipe', directory)
  }
  writeFileSync(yaml, text)
  const bus = `lmdb:${directory}`
  const before = await recordedArm(bus, name)
  let lines: string
  if (before.state === 'none') lines = await trained(name, directory, ['train', yaml, '--run', name, '--bus', bus])
  else {
    if (before.state === 'begun') await trained(name, directory, ['train', yaml, '--resume', name, '--bus', bus])
    const arm = before.state === 'over' ? before : await recordedArm(bus, name)
    if (arm.state !== 'over') throw failed(name, 'its process ended, and its log has no end', directory)
    lines = [...arm.steps, arm.summary].map(line => `${JSON.stringify(line)}\n`).join('')
  }
  writeFileSync(kept, lines)
  return parsed(lines, join(directory, 'runs', name))
}

/** What it prints. */
async function trained(name: string, directory: string, args: readonly string[]): Promise<string> {
  process.stderr.write(`${name}: training${args.includes('--resume') ? ', from where it was cut off' : ''}\n`)
  const child = spawn(process.execPath, [join(packageRoot(), 'cli/bin.js'), ...args, '--json'], {
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
  const isEvaluated = code === 0 || (code === 1 && stdout.includes('"outcome":"stopped"'))
  if (!isEvaluated) throw failed(name, `it ended with ${code}: ${stderr.trim()}`, directory)
  return stdout
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
