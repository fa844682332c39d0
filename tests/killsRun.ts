/**
 * `npm run test:kills -- [--times 50] [--seed N]`: a small quickstart whose processes are all killed with -9 at random moments,
 * and which is resumed each time. Prints what the log held at each kill. With `--children`: one run of which each kind of
 * child is killed so many times (20), as it starts and later, and which is never resumed.
 * Exit 1 when a resumed log is no extension of the one before it, a turn counted twice, a step was trained twice, or the end fails.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { pcg32 } from '../kernels/random'
import { runId } from '../messages/ids'
import { memoryBlobs } from '../runtime/bus/blobs'
import { openLmdbBus } from '../runtime/bus/lmdb/lmdbBus'
import { openJournal } from '../runtime/journal/openJournal'
import { runDirectory } from '../runtime/runDirectory'
import { audit } from './support/audit'
import { childrenKilled, wrongAfterKills } from './support/childrenKilled'
import { isAlive, messagesOf, type Running, troupe } from './support/cli'
import { descendantsOf } from './support/descendants'
import { exitWith } from './support/exitWith'
import { type LogImage, logImage, notExtended, recordsOf } from './support/logImage'
import { smallRun } from './support/smallRun'
import { until } from './support/until'

const run = runId('kills')
/** From its start to the kill: into its start-up, its rollouts, its training. */
const latestKillMs = 20_000

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: { times: { type: 'string' }, seed: { type: 'string' }, children: { type: 'boolean' } },
  })
  const isOfChildren = values.children === true
  const [times, seed] = [Number(values.times ?? (isOfChildren ? 20 : 50)), Number(values.seed ?? 1)]
  if (!(times > 0) || !Number.isInteger(seed)) {
    console.error('usage: npm run test:kills -- [--children] [--times N] [--seed N]')
    return 2
  }
  if (isOfChildren) return killsOfChildren(times, seed)
  const random = pcg32(seed)
  const directory = mkdtempSync(join(tmpdir(), 'troupe-kills-'))
  const log = runDirectory(directory, run).log
  const look = async <T>(what: (bus: Awaited<ReturnType<typeof openLmdbBus>>) => Promise<T>): Promise<T> => {
    const bus = await openLmdbBus({ directory: log, mode: 'read' })
    return what(bus).finally(() => bus.close())
  }
  const goOn = (...more: readonly string[]): Running =>
    troupe(['train', 'quickstart', '--bus', `lmdb:${directory}`, '--resume', run, ...more])
  const faults: string[] = []
  let before: LogImage = new Map()
  try {
    // On a quiet machine there are thousands of steps: a checkpoint of each would fill the disk.
    const fresh = ['train', 'quickstart', '--bus', `lmdb:${directory}`, '--run', run, '--steps', '100000']
    fresh.push('--set', 'train.checkpointEvery=25')
    let running = troupe([...fresh, ...smallRun(600)])
    await until(
      async () => (await messagesOf(directory, run, 'learner')).some(m => m.type === 'step.completed'),
      240_000,
    )
    for (let kill = 1; kill <= times; kill++) {
      const afterMs = random.below(latestKillMs)
      await sleep(afterMs)
      await killAll(running)
      const image = await look(logImage)
      const wrong = notExtended(before, image)
      if (wrong !== undefined) faults.push(`kill ${kill}: ${wrong}`)
      console.error(
        `kill ${kill}, ${(afterMs / 1000).toFixed(1)} s after it was started: ${recordsOf(image)} records, ${recordsOf(image) - recordsOf(before)} new${wrong === undefined ? '' : `: ${wrong}`}`,
      )
      before = image
      running = goOn()
    }
    await killAll(running)
    const done = (await messagesOf(directory, run, 'learner')).filter(m => m.type === 'step.completed').length
    const { code, stderr } = await goOn('--steps', `${done + 2}`).done
    if (code !== 0) faults.push(`the last resume ended with ${code}: ${stderr.slice(-1000)}`)
    const wrong = notExtended(before, await look(logImage))
    if (wrong !== undefined) faults.push(`the last resume: ${wrong}`)
    const counted = await look(bus => audit(openJournal(bus, memoryBlobs(), run)))
    const { turnsTwice, lost, steps, started, violations } = counted
    faults.push(...violations.map(({ kind, message }) => `${kind}: ${message}`))
    const expected = Array.from({ length: done + 2 }, (_, at) => at + 1).join()
    if (turnsTwice.length > 0) faults.push(`turns that counted twice: ${turnsTwice.join(', ')}`)
    if (lost.length > 0) faults.push(`lost: ${lost.join(', ')}`)
    const said = (numbers: readonly number[]) => `${numbers.length}, the last ${numbers.slice(-5).join()}`
    if (steps.join() !== expected || started.join() !== expected)
      faults.push(`of steps 1 to ${done + 2}: completed ${said(steps)}; started ${said(started)}`)
    const { turnsCounted, rollouts } = counted
    console.log(JSON.stringify({ kills: times, steps: steps.length, turnsCounted, rollouts, faults }, null, 2))
    console.log(faults.length === 0 ? `survived ${times} kills` : 'NOT survived')
    return faults.length === 0 ? 0 : 1
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Kills each kind of child so many times in one run. */
async function killsOfChildren(times: number, seed: number): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-kills-'))
  const begun = performance.now()
  const say = (text: string) => console.error(`${((performance.now() - begun) / 1000).toFixed(1)} s: ${text}`)
  try {
    const options = { directory, times, seed, steps: Math.max(4, 2 * times), say }
    const result = await childrenKilled(options)
    const faults = wrongAfterKills(result, options)
    const { turnsCounted, rollouts, steps } = result.audit
    console.log(JSON.stringify({ kills: result.kills, steps: steps.length, turnsCounted, rollouts, faults }, null, 2))
    console.log(faults.length === 0 ? `survived ${times} kills of each child` : 'NOT survived')
    return faults.length === 0 ? 0 : 1
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Its children hold what they were given until they are gone: all of them are waited for. */
async function killAll(running: Running): Promise<void> {
  const { pid } = running.process
  const all = pid === undefined ? [] : [pid, ...descendantsOf(pid)]
  for (const one of all) {
    try {
      process.kill(one, 'SIGKILL')
    } catch {
      // ended by itself
    }
  }
  await running.done
  await until(async () => !all.some(isAlive), 20_000)
}

exitWith(main)
