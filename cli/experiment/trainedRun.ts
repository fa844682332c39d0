/**
 * Runs `troupe train` in a child process, for an arm of an experiment.
 *
 * in   a recipe, a directory        out  the run's steps and its summary, as --json prints them
 * Invariant: an arm's log stays in the directory, so that `troupe replay` can look up a figure of the report. An arm
 * that has finished with the same recipe is not run again; an interrupted one is resumed.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { stringify } from 'yaml'
import type { StepReport, summaryOf } from '../../replay/learning/progress'
import { endedHow, TroupeError } from '../../runtime/errors'
import { packageRoot } from '../../runtime/python'
import { outputTail } from '../../runtime/secrets/outputTail'
import { recordedArm } from './recordedArm'

type Summary = ReturnType<typeof summaryOf>

export interface TrainedRun {
  readonly steps: readonly StepReport[]
  readonly summary: Summary
  /** Directory of the run, with its log and models. */
  readonly directory: string
}

const tailChars = 2000

/**
 * Trains an arm, or reads the result of its earlier run.
 * @throws TroupeError cli.arm_failed if its process failed (the error has the end of the process's stderr), if its
 * directory holds a run of another recipe, or if its log does not say that the resumed run is over
 */
export async function trainedRun(name: string, recipe: object, directory: string): Promise<TrainedRun> {
  mkdirSync(directory, { recursive: true })
  const [yaml, kept] = [join(directory, `${name}.yaml`), join(directory, `${name}.jsonl`)]
  const text = stringify(recipe)
  const isSame = existsSync(yaml) && readFileSync(yaml, 'utf8') === text
  if (existsSync(kept) && isSame) return parsed(readFileSync(kept, 'utf8'), join(directory, 'runs', name))
  if (existsSync(join(directory, 'runs', name)) && !isSame) {
    throw failed(name, 'its directory holds a run of another recipe', directory)
  }
  writeFileSync(yaml, text)
  const bus = `lmdb:${directory}`
  const before = await recordedArm(bus, name)
  let lines: string
  if (before.state === 'none') lines = await trained(name, directory, ['train', yaml, '--run', name, '--bus', bus])
  else {
    if (before.state === 'begun') await trained(name, directory, ['train', yaml, '--resume', name, '--bus', bus])
    const arm = before.state === 'over' ? before : await recordedArm(bus, name)
    if (arm.state !== 'over')
      throw failed(name, 'its process ended, but its log says that the run is not over or has failed', directory)
    lines = [...arm.steps, arm.summary].map(line => `${JSON.stringify(line)}\n`).join('')
  }
  writeFileSync(kept, lines)
  return parsed(lines, join(directory, 'runs', name))
}

/** Runs `troupe` in a child process and returns its stdout. */
async function trained(name: string, directory: string, args: readonly string[]): Promise<string> {
  process.stderr.write(`${name}: training${args.includes('--resume') ? ', resumed where it stopped' : ''}\n`)
  const child = spawn(process.execPath, [join(packageRoot(), 'cli/bin.js'), ...args, '--json'], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { TROUPE_LOG: 'warn', ...process.env },
  })
  const stderr = outputTail([child.stderr], { chars: tailChars })
  let stdout = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    stdout += chunk
  })
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (...end) => resolve(end))
  })
  // Exit code 1 is accepted when the run's outcome is `stopped` (no group had different rewards): it was still
  // evaluated.
  const isEvaluated = code === 0 || (code === 1 && stdout.includes('"outcome":"stopped"'))
  if (!isEvaluated) throw failed(name, `its process ${endedHow(code, signal)}: ${stderr().trim()}`, directory)
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
    message: `the arm ${name} of the experiment failed: ${why}`,
    hint: `look at its log under ${directory}/runs/${name}, or give another --dir to start again`,
  })
