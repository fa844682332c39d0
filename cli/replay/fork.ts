/**
 * `troupe replay fork T --from-turn K`: shares the first K turns of a trajectory, continues live, and prints the
 * results. With `--from-turn all` every turn is forked: the mean reward of the forks at K is the value of the state
 * before turn K.
 */
import { type Command, InvalidArgumentError } from 'commander'
import type { ChangedCell } from '../../replay/fork/changedCells'
import { type ForkResult, type TurnValue, turnValue } from '../../replay/fork/forkResults'
import { forkTrajectory } from '../../replay/fork/forkTrajectory'
import type { ForkPlan, ForkOptions as PlanOptions } from '../../replay/fork/planForks'
import type { Trajectory } from '../../replay/trajectories/trajectory'
import { stopSignals } from '../io/signals'
import { escapeForTerminal, painter } from '../io/terminal'
import { numberFrom, wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { onNotice, type ReadOptions, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface ForkOptions extends ReadOptions, PlanOptions {
  readonly json?: boolean
}

export function registerFork(replay: Command): void {
  const command = replay
    .command('fork <trajectory>')
    .description(
      'share the first turns of a trajectory and continue live with another seed, temperature, policy, tool or tool result',
    )
    .requiredOption('--from-turn <k>', 'share the turns before this one (0-based); all: fork at every turn', turn)
    .option('--times <n>', 'number of forks at each turn', wholeNumber(1, 1024), 1)
    .option('--seed <n>', "seed of the forks (default: derived from the parent's)", wholeNumber(0, 2 ** 31 - 1))
    .option('--temperature <t>', "sample at this temperature (default: the parent's)", numberFrom(0))
    .option(
      '--edit-tool-result <file>',
      'file with the text that replaces a tool result of the turn before --from-turn; of several, the one recorded last',
    )
    .option(
      '--policy <version>',
      "continue with this policy version (default: the one that sampled the turn's last token, or the nearest on disk)",
      wholeNumber(0, 2 ** 31),
    )
    .option('--model <dir>', 'continue with the weights in this directory')
    .option(
      '--engine <address>',
      'engine that continues: local, vllm:URL, sglang:URL or openai:URL (repeatable; default: those of the run)',
      repeatable,
      [],
    )
    .option('--recipe <name|file>', "use this recipe's tools and rewards (default: the run's own)")
    .option('--as <run>', 'name of the new run that holds the forks (default: fork-, the parent run and the time)')
    .option('--json', 'print one JSON line for each fork, then a summary')
  withRun(command).action(fork)
}

async function fork(asked: string, options: ForkOptions): Promise<void> {
  const stop = new AbortController()
  let signals: ReturnType<typeof stopSignals> | undefined
  const showsProgress = process.stderr.isTTY
  let isLineOpen = false
  const endLine = () => {
    if (isLineOpen) process.stderr.write('\n')
    isLineOpen = false
  }
  try {
    const { plan, results } = await forkTrajectory({ ...options, onNotice }, asked, options, {
      signal: stop.signal,
      onPlanned(planned, changed) {
        reportPlan(planned, changed)
        signals = stopSignals()
        void signals.stopped.then(reason => stop.abort(reason))
      },
      onEnded(ended, all) {
        if (!showsProgress) return
        process.stderr.write(`\r${ended} of ${all} ended`)
        isLineOpen = true
      },
    })
    signals?.release()
    endLine()
    print(plan, results, options.json === true)
    process.exitCode = signals?.exitCode() ?? 0
  } finally {
    signals?.release()
    endLine()
  }
}

function reportPlan({ parent, parts, run, environmentChanges }: ForkPlan, changed: readonly ChangedCell[]): void {
  const at = parts.map(({ weights, turns }) => `${turns.map(k => `turn ${k}`).join(', ')}, policy ${weights.version}`)
  process.stderr.write(`run ${run}: ${parent.id} forked at ${at.join('; ')}\n`)
  if (environmentChanges.length > 0)
    process.stderr.write(
      `the forks' code runs in another environment than the parent's: ${environmentChanges.join(', ')}\n`,
    )
  for (const { turn, call, recorded: was, now } of changed) {
    process.stderr.write(
      `turn ${turn}, call ${call} of the notebook has another output now: ${brief(was)} → ${brief(now)}; the forks' notebook has the new state, the model is shown the recorded output\n`,
    )
  }
}

const paint = painter(process.stdout)
const brief = (text: string) => `'${escapeForTerminal(text).replace(/\s+/g, ' ').slice(0, 100)}'`

function print(
  { parent, parentRun, run, parts, turns }: ForkPlan,
  results: readonly ForkResult[],
  json: boolean,
): void {
  const versionAt = (turn: number) => parts.find(p => p.turns.includes(turn))!.weights.version
  const values = turns.map(k => {
    const own = results.filter(r => r.turn === k)
    return { ...turnValue(k, own), policyVersion: versionAt(k) }
  })
  const reward = parent.reward?.reward ?? null
  if (json) {
    for (const result of results) process.stdout.write(`${jsonText(result)}\n`)
    const of = { trajectory: parent.id, run: parentRun, reward }
    // Policy version with which all forks continue; null when it differs by turn: then each entry of `values` has its
    // own.
    const policyVersion = parts.length === 1 ? parts[0]!.weights.version : null
    process.stdout.write(`${jsonText({ type: 'summary', run, parent: of, policyVersion, values })}\n`)
    return
  }
  const lines = [
    `${escapeForTerminal(parent.id)} of ${parentRun}: reward ${reward ?? '–'}; its forks are run ${run}`,
    'turn  forks  mean reward  standard error  what the parent wrote there',
    ...values.map(v => valueLine(v, parent)),
  ]
  process.stdout.write(`${lines.join('\n')}\n`)
}

function valueLine(value: TurnValue, parent: Trajectory): string {
  const number = (n: number | null) => (n === null ? '–' : n.toFixed(3))
  const text = escapeForTerminal((parent.texts[value.turn] ?? '').replace(/\s+/g, ' ').trim())
  const shown = text.length > 70 ? `${text.slice(0, 69)}…` : text
  return `${String(value.turn).padStart(4)}  ${String(value.forks).padStart(5)}  ${number(value.mean).padStart(11)}  ${number(value.standardError).padStart(14)}  ${paint('dim', shown)}`
}

function turn(text: string): number | 'all' {
  if (text === 'all') return 'all'
  if (/^\d{1,6}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('Write a turn, counted from 0, or all.')
}
