/**
 * Measures how long a resume takes and how much memory a coordinator needs: every actor that reduces facts starts on a
 * log.
 *
 * The first log has a million turns: one of a hundred steps is open, with 64 groups of 16; the others are done. The
 * second has one open step with 10,000 trajectories. The open groups' facts are reduced and their turns requested
 * again; engines, tools and the trainer are not started. The benchmark first writes the logs, 6 KB per turn: 8 GB of
 * disk.
 */
import { fork } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runId } from '../messages/ids'
import { memoryBlobs } from '../runtime/bus/blobs'
import { openLmdbBus } from '../runtime/bus/lmdb/lmdbBus'
import { endedHow } from '../runtime/errors'
import { openJournal } from '../runtime/journal/openJournal'
import { atLeast, atMost, type BenchReport, describeMachine, printReport } from './report'
import { type LongRun, writeLongRun } from './support/longRun'
import type { ResumedRun } from './support/resumedRun'

const long: LongRun = { steps: 100, groups: 64, groupSize: 16, turns: 10 }
const wide: LongRun = { steps: 1, groups: 625, groupSize: 16, turns: 4 }

interface Resumed {
  readonly seconds: number
  readonly peakMib: number
  readonly open: number
}

async function measure(run: LongRun): Promise<Resumed & { turns: number; facts: number; writeSeconds: number }> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-bench-resume-'))
  try {
    const began = performance.now()
    const bus = await openLmdbBus({ directory, mode: 'write' })
    const journal = openJournal(bus, memoryBlobs(), runId('r'))
    await journal.create(1)
    const written = await writeLongRun(journal, run)
    const writeSeconds = (performance.now() - began) / 1000
    await bus.close()
    // A first resume commits the offset at which the open groups begin, as the owner of a partition does continuously
    // in a live run.
    await resume({ directory, groups: run.groups })
    return { ...(await resume({ directory, groups: run.groups })), ...written, writeSeconds }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

function resume(run: ResumedRun): Promise<Resumed> {
  const child = fork(join(__dirname, 'support/resumedRun'), [JSON.stringify(run)], {
    execArgv: __filename.endsWith('.ts') ? ['-r', join(__dirname, '../cli/register.js')] : [],
  })
  let result: Resumed | undefined
  let failed = ''
  child.on('message', (said: Resumed | { error: string }) => {
    if ('error' in said) failed = said.error
    else result = said
  })
  return new Promise((resolve, reject) => {
    child.once('exit', (code, signal) => {
      if (result === undefined)
        reject(
          new Error(`the process of the resumed run ${endedHow(code, signal)} without a result ${failed}`.trimEnd()),
        )
      else resolve(result)
    })
  })
}

export async function bench(): Promise<BenchReport> {
  const afterMany = await measure(long)
  const many = await measure(wide)
  return {
    bench: 'resume',
    machine: describeMachine(),
    metrics: {
      'long.turns': afterMany.turns,
      'long.facts': afterMany.facts,
      'long.writeSeconds': afterMany.writeSeconds,
      'long.openTrajectories': afterMany.open,
      'long.peakMiB': afterMany.peakMib,
      'wide.openTrajectories': many.open,
      'wide.seconds': many.seconds,
    },
    budgets: [
      atLeast('turns of 6 KB in the log', afterMany.turns, 1_000_000),
      atMost('resume with 1 % of the groups open, seconds', afterMany.seconds, 10),
      atLeast('live trajectories of one coordinator', many.open, 10_000),
      atMost('peak memory of its own with them, MiB', many.peakMib, 1024),
    ],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
