/**
 * Runs a small quickstart on lmdb, kills its child processes a given number of times per kind from its start on, and
 * reads the result from its log.
 *
 * in   a directory, the number of kills, a seed, the number of steps
 * out  the kills by kind, the run's end, its audit, the result of `replay verify`
 * Invariant: the run's reward is slow until all kills are over, so that the run cannot end earlier; it ends by itself.
 */
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Message } from '../../messages'
import { runId } from '../../messages/ids'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { openJournal } from '../../runtime/journal/openJournal'
import { runDirectory } from '../../runtime/runDirectory'
import { type Audit, audit } from './audit'
import { type KillCount, killChildren } from './chaos/childKills'
import { type ChildKind, childKinds } from './chaos/children'
import { messagesOf, troupe } from './cli'
import { smallRun } from './smallRun'

export interface ChildrenKilledOptions {
  readonly directory: string
  readonly times: number
  readonly seed: number
  readonly steps: number
  /** Kinds to kill. Default: all kinds whose death does not kill children of other kinds. */
  readonly kinds?: readonly ChildKind[]
  readonly say?: (text: string) => void
}

export interface ChildrenKilled {
  readonly kills: readonly KillCount[]
  readonly code: number | null
  readonly stderr: string
  readonly audit: Audit
  /** Number of rollouts whose grading failed (`reward.failed`). */
  readonly unrewarded: number
  readonly telemetry: readonly Message[]
  /** What `replay verify` printed, and its exit code. */
  readonly verified: { readonly code: number | null; readonly stdout: string }
}

const run = runId('children')

export async function childrenKilled(options: ChildrenKilledOptions): Promise<ChildrenKilled> {
  const { directory, steps, kinds = childKinds, say = () => {} } = options
  const bus = `lmdb:${directory}`
  const pace = join(directory, 'pace')
  writeFileSync(pace, '')
  const reward = ['--set', `reward.file=${join(__dirname, 'pacedParity.py')}`, '--set', 'reward.processes=2']
  const args = ['train', 'quickstart', '--json', '--steps', `${steps}`, '--run', run, '--bus', bus]
  const running = troupe([...args, ...smallRun(600), ...reward], { TROUPE_TEST_PACE: pace })
  let ended = false
  void running.done.then(() => {
    ended = true
  })
  try {
    const killing = killChildren({
      pid: () => running.process.pid!,
      kinds,
      times: options.times,
      seed: options.seed,
      trained: async () => (await messagesOf(directory, run, 'learner')).length,
      onKill: (kind, how) => say(`killed a ${kind} ${how}`),
    })
    const early = running.done.then(({ code, stderr }) => {
      throw new Error(`the run ended with ${code} before all children were killed: ${stderr.slice(-2000)}`)
    })
    early.catch(() => {}) // it also rejects at the run's regular end, when nothing awaits it any more
    const kills = await Promise.race([killing, early])
    say('no more kills')
    rmSync(pace)
    const { code, stderr } = await running.done
    const open = await openLmdbBus({ directory: runDirectory(directory, run).log, mode: 'read' })
    const counted = await audit(openJournal(open, memoryBlobs(), run)).finally(() => open.close())
    const rewards = await messagesOf(directory, run, 'trajectories')
    const { code: verifyCode, stdout } = await troupe(['replay', 'verify', '--bus', bus, '--run', run]).done
    return {
      ...{ kills, code, stderr, audit: counted },
      unrewarded: rewards.filter(({ type }) => type === 'reward.failed').length,
      telemetry: await messagesOf(directory, run, 'telemetry'),
      verified: { code: verifyCode, stdout },
    }
  } finally {
    if (!ended) {
      running.process.kill('SIGKILL')
      await running.done
    }
  }
}

/** Lists the errors of a run after the kills; empty if the run lost and repeated nothing. */
export function wrongAfterKills(result: ChildrenKilled, { times, steps }: ChildrenKilledOptions): readonly string[] {
  const wrong: string[] = []
  const all = Array.from({ length: steps }, (_, at) => at + 1).join()
  const { code, stderr, unrewarded, verified } = result
  const { turnsTwice, lost, failed, failedBecause, steps: done, started, deadLetters } = result.audit
  if (code !== 0) wrong.push(`it ended with ${code}: ${stderr.slice(-1000)}`)
  for (const { kind, kills, atStart } of result.kills)
    if (kills !== times || atStart === 0) wrong.push(`${kind}: ${kills} kills, ${atStart} of them as it started`)
  if (turnsTwice.length > 0) wrong.push(`turns that counted twice: ${turnsTwice.join(', ')}`)
  if (lost.length > 0) wrong.push(`lost: ${lost.join(', ')}`)
  if (failed > 0) wrong.push(`${failed} failed rollouts: ${failedBecause.join('; ')}`)
  if (unrewarded > 0) wrong.push(`${unrewarded} rollouts without a reward`)
  if (done.join() !== all || started.join() !== all) wrong.push(`steps ${done.join()}, started ${started.join()}`)
  wrong.push(...result.audit.violations.map(({ kind, message }) => `${kind}: ${message}`))
  if (deadLetters > 0) wrong.push(`${deadLetters} dead letters`)
  if (verified.code !== 0 || !/^sound$/m.test(verified.stdout)) wrong.push(`replay verify: ${verified.stdout}`)
  return wrong
}
