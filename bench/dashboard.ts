/**
 * Measures `troupe dashboard` over a log of 100,000 trajectories (a million facts): the first view, scrolling, memory,
 * and the CPU time of an idle page; and beside a live run, what the run loses while its page is open.
 *
 * A first server builds the index; the figures are those of a second server, which finds the index. A time is measured
 * from a request to the end of its answer.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { runId } from '../messages/ids'
import { memoryBlobs } from '../runtime/bus/blobs'
import { openLmdbBus } from '../runtime/bus/lmdb/lmdbBus'
import { openJournal } from '../runtime/journal/openJournal'
import { runDirectory } from '../runtime/runDirectory'
import { atLeast, atMost, type BenchReport, describeMachine, median, printReport } from './report'
import { scrolledPage } from './support/dashboard/scrolledPage'
import { root, serveDashboard } from './support/dashboard/servedDashboard'
import { watchedRun } from './support/dashboard/watchedRun'
import { type ManyTrajectories, writeManyTrajectories } from './support/manyTrajectories'

const run = runId('many')
const many: ManyTrajectories = { steps: 125, groups: 50, groupSize: 16 }
const partitions = 4
const pages = 100
const watchSeconds = 10

async function seconds(url: string): Promise<number> {
  const began = performance.now()
  const response = await fetch(url)
  await response.arrayBuffer()
  if (!response.ok) throw new Error(`${url}: status ${response.status}`)
  return (performance.now() - began) / 1000
}

export async function bench(): Promise<BenchReport> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-bench-dashboard-'))
  try {
    const { log } = runDirectory(directory, run)
    mkdirSync(log, { recursive: true })
    const bus = await openLmdbBus({ directory: log, mode: 'write' })
    const journal = openJournal(bus, memoryBlobs(), run)
    await journal.create(partitions)
    const written = await writeManyTrajectories(journal, many)
    await bus.close()

    const first = await serveDashboard(directory)
    const building = await seconds(`${first.url}api/runs/${run}`)
    await first.end()

    const served = await serveDashboard(directory)
    try {
      const base = `${served.url}api/runs/${run}`
      const began = performance.now()
      await Promise.all([seconds(base), seconds(`${base}/trajectories?limit=200`)])
      const view = (performance.now() - began) / 1000
      const scrolled: number[] = []
      for (let page = 0; page < pages; page++) {
        const offset = Math.floor((written.trajectories / pages) * page)
        scrolled.push(await seconds(`${base}/trajectories?offset=${offset}&limit=200`))
      }
      const filtered = await seconds(`${base}/trajectories?toolErrors=1&reward=%3E0&limit=200`)
      const group = await seconds(`${base}/groups/s0100.0007`)
      const trajectory = await seconds(`${base}/trajectories/s0100.0007/3`)
      const ending = new AbortController()
      const stream = await fetch(`${base}/stream`, { signal: ending.signal })
      const before = served.cpuSeconds()
      await sleep(watchSeconds * 1000)
      const watching = (served.cpuSeconds() - before) / watchSeconds
      ending.abort()
      await stream.body?.cancel().catch(() => {})
      const scrolledIn = await scrolledPage(`${served.url}#/r/${run}/trajectories`)
      if (scrolledIn === undefined) process.stderr.write('no Chromium: the page is not measured in a browser\n')
      const memory = served.megabytes()
      const build = join(root, __filename.endsWith('.ts') ? 'dashboard' : 'dist/dashboard', 'page/build')
      const beside = await watchedRun()
      const page = ['page.js', 'page.css', 'index.html'].map(name => gzipSync(readFileSync(join(build, name))).length)
      return {
        bench: 'dashboard',
        machine: describeMachine(),
        metrics: {
          ...written,
          'first view that builds the index, seconds': building,
          'list with a filter, seconds': filtered,
          'a group, seconds': group,
          'a trajectory, seconds': trajectory,
          'tokens a second of a run that nobody watches': beside.tokensPerSecond,
          'overviews answered while a run was watched': beside.answers,
          'memory of the server beside that run, MB': beside.serverMegabytes,
        },
        budgets: [
          atLeast('trajectories in the log', written.trajectories, 100_000),
          atMost('first view after the index exists, seconds', view, 1.5),
          // 0.02 s is one frame at 50 frames per second.
          atMost('a page of 200 rows, median seconds', median(scrolled), 0.02),
          atMost('memory of the server without the mapped log, MB', memory, 300),
          atMost('CPU of the server while a page watches a run that ended, share of a core', watching, 0.05),
          atMost('CPU of the server while a page watches a live run, share of a core', beside.serverShare, 0.05),
          atLeast('tokens a second of a watched run, times those of the same run alone', beside.ratio, 0.98),
          atMost('page, compressed kB', page.reduce((a, b) => a + b, 0) / 1000, 120),
          ...(scrolledIn === undefined
            ? []
            : [
                atLeast('frames a second while 40 rows a frame are scrolled', scrolledIn.framesPerSecond, 50),
                atMost('frames in which a row was missing', scrolledIn.framesWithGaps, 0),
                atMost('memory of the page in the browser, MB', scrolledIn.megabytes, 300),
              ]),
        ],
      }
    } finally {
      await served.end()
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
