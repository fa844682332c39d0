/**
 * Measures what a run loses while its page is open: tokens a second of the same rounds of rollouts, watched and not.
 *
 * A real engine makes rollouts whose lengths are fixed by traces, on a durable log; the dashboard's server runs beside
 * it all the time, and a reader asks of it what an open page asks in every other round. The reader's own work, which
 * would be the viewer's machine's, counts too.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { median } from '../../report'
import { quickstartLoad } from '../quickstartLoad'
import { recordSteps } from '../recordedStep'
import { figuresOf, inOrder, spanOf, turnsOf } from '../rolloutRound'
import { startTracedRun } from '../tracedRun'
import { traces } from '../traces'
import { root, serveDashboard } from './servedDashboard'

const { groups, groupSize, shape, set } = quickstartLoad
/** Rounds that are not counted, because the JIT compiler still works on them: each arm has one. */
const warmUps = 2
const rounds = 24

export interface WatchedRun {
  /** Median, over neighbouring rounds, of tokens a second while watched divided by those while not. */
  readonly ratio: number
  readonly tokensPerSecond: number
  /** CPU time of the server while the run is watched, as a share of a core. */
  readonly serverShare: number
  readonly serverMegabytes: number
  /** Overviews that were answered in the watched rounds. */
  readonly answers: number
}

export async function watchedRun(): Promise<WatchedRun> {
  const plan = traces(groups * groupSize, shape, 1)
  const run = await startTracedRun({
    bus: 'lmdb:',
    learns: false,
    traces: plan,
    set: [
      ...set,
      `rollout.groupsPerStep=${groups}`,
      `rollout.groupSize=${groupSize}`,
      `train.steps=${rounds + warmUps}`,
    ],
  })
  const recorded = await recordSteps(run.run)
  const served = await serveDashboard(run.directory)
  const reader = startReader(`${served.url}api/runs/${run.name}`)
  const arms = { watched: [] as number[], alone: [] as number[] }
  let cpu = 0
  let watchedSeconds = 0
  let answers = 0
  try {
    for (let round = 1; round <= rounds + warmUps; round++) {
      // The arms take turns in going first: alone, watched, watched, alone, …
      const isWatched = round % 4 > 1
      const open = await run.nextDraw()
      await reader.tell(isWatched ? 'watch' : 'rest')
      const before = { at: performance.now(), cpu: served.cpuSeconds() }
      open()
      const step = inOrder(await recorded.step(round, groups), groupSize)
      const { tokensPerSecond } = figuresOf(step.map(turnsOf), plan, spanOf(step))
      const seen = isWatched ? await reader.tell('rest') : 0
      process.stderr.write(`round ${round}${isWatched ? ', watched' : ''}: ${Math.round(tokensPerSecond)} tokens/s\n`)
      if (round <= warmUps) continue
      arms[isWatched ? 'watched' : 'alone'].push(tokensPerSecond)
      if (!isWatched) continue
      answers += seen
      cpu += served.cpuSeconds() - before.cpu
      watchedSeconds += (performance.now() - before.at) / 1000
    }
    return {
      ratio: median(arms.watched.map((rate, k) => rate / arms.alone[k]!)),
      tokensPerSecond: median(arms.alone),
      serverShare: cpu / watchedSeconds,
      serverMegabytes: served.megabytes(),
      answers,
    }
  } finally {
    await reader.end()
    await served.end()
    await recorded.close()
    await run.close()
  }
}

function startReader(url: string) {
  const file = join(__dirname, `pageReader${__filename.endsWith('.ts') ? '.ts' : '.js'}`)
  const child: ChildProcessByStdio<Writable, Readable, null> = spawn(
    process.execPath,
    ['-r', join(root, 'cli/register.js'), file, url],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  )
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const ended = once(child, 'exit')
  return {
    /** @returns the number of overviews since the last command */
    async tell(command: 'watch' | 'rest'): Promise<number> {
      child.stdin.write(`${command}\n`)
      const { value, done } = await lines.next()
      if (done) throw new Error('the reader of the dashboard ended; its error stands above')
      return Number(value)
    },
    async end(): Promise<void> {
      child.stdin.end()
      child.kill('SIGTERM')
      await ended
    },
  }
}
