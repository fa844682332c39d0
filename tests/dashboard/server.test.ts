/** The dashboard's server over a real log: what it answers, how it pages, how its stream goes on, what it refuses. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type {
  Cluster,
  EventLine,
  GroupLine,
  GroupReport,
  Lanes,
  Overview,
  Paged,
  RunLine,
  StreamFact,
  TokenPage,
  TrajectoryLine,
  TrajectoryReport,
  WhyReport,
} from '../../dashboard/api'
import { type Dashboard, openDashboard } from '../../dashboard/server/openDashboard'
import { OpenedRun } from '../../dashboard/server/openedRun'
import { runId } from '../../messages/ids'
import { runProgress } from '../../replay/learning/runProgress'
import { openLog } from '../../replay/log/recordedRun'
import { beat } from '../../runtime/bus/lmdb/holder'
import { systemEffects } from '../../runtime/effects'
import { runDirectory } from '../../runtime/runDirectory'
import { streamed } from '../support/dashboard/streamed'
import { changed, saveHistory } from '../support/histories'
import { appendRest, history, rest, saveFirstPart } from './grownHistory'

jest.setTimeout(60_000)

const { run } = history
let directory: string
let dashboard: Dashboard
let previousHome: string | undefined

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'troupe-dashboard-'))
  previousHome = process.env.TROUPE_HOME
  process.env.TROUPE_HOME = join(directory, 'home')
  await saveFirstPart(directory)
  dashboard = await openDashboard({ bus: `lmdb:${directory}`, port: 0, host: '127.0.0.1' })
})
afterAll(async () => {
  await dashboard.close()
  if (previousHome === undefined) delete process.env.TROUPE_HOME
  else process.env.TROUPE_HOME = previousHome
  rmSync(directory, { recursive: true, force: true })
})

async function asked<T>(path = '', init: RequestInit = {}): Promise<T> {
  const response = await fetch(`${dashboard.url}api/runs/${run}${path}`, init)
  expect(response.status).toBe(200)
  return (await response.json()) as T
}

const fromStream = (from: string, count: number) => streamed(dashboard.url, run, from, count)

const beginning = 'runs:0:0,learner:0:0,trajectories:0:0'

test('the list, the header, a group, a trajectory, its tokens and its events are answered, each with its command', async () => {
  const lines = (await (await fetch(`${dashboard.url}api/runs`)).json()) as readonly RunLine[]
  expect(lines).toMatchObject([{ run, state: 'live', recipe: 'quickstart' }])
  const overview = await asked<Overview>()
  expect(overview).toMatchObject({ run, state: 'live' })
  expect(overview.lastPlace).toMatch(/^[a-z-]+:\d+:\d+$/)
  const list = await asked<Paged<TrajectoryLine>>('/trajectories?selection=kept&limit=1')
  const [kept] = list.rows
  expect(list.command).toBe(`npx troupe replay ls --selection kept --bus lmdb:${directory} --run ${run}`)
  const [group, member] = kept!.trajectory.split('/')
  const report = await asked<GroupReport>(`/groups/${group}`)
  expect(report.members.find(one => one.member === Number(member))).toMatchObject({ selection: 'kept' })
  expect(report.members.map(one => one.why).join('\n')).toMatch(/kept: .*(positives|negatives) are kept|kept whole/)
  const trajectory = await asked<TrajectoryReport>(`/trajectories/${kept!.trajectory}`)
  expect(trajectory.summary).toEqual(kept)
  expect(trajectory.parts.some(part => part.kind === 'turn')).toBe(true)
  const tokens = await asked<TokenPage>(`/trajectories/${kept!.trajectory}/tokens?limit=8192`)
  expect(tokens.spans.reduce((sum, span) => sum + span.ids.length, 0)).toBe(tokens.total)
  const events = await asked<Paged<EventLine>>(`/trajectories/${kept!.trajectory}/events`)
  expect(events.rows[0]).toMatchObject({ type: 'rollout.requested', counts: true })
  const { rows } = await asked<Lanes>(`/lanes?step=${kept!.step}`)
  const pieces = rows.find(lane => lane.trajectory === kept!.trajectory)!.pieces
  expect(pieces.some(piece => piece.kind === 'generation')).toBe(true)
  expect(pieces.every(piece => piece.to > piece.from)).toBe(true)
  expect((await asked<Cluster>('/cluster')).topics.length).toBeGreaterThan(5)
  const why = await asked<WhyReport>(`/why?id=${kept!.trajectory}`)
  expect(why).toMatchObject({ outcome: expect.stringMatching(/^scored/), waits: [] })
  expect(why.command).toBe(`npx troupe why ${run} ${kept!.trajectory} --bus lmdb:${directory}`)
})

test('pages of a list join without a gap or a repetition, and a filter that is not valid is refused', async () => {
  const whole = await asked<Paged<TrajectoryLine>>('/trajectories?limit=500')
  const pages: string[] = []
  for (let offset = 0; offset < whole.total; offset += 7) {
    const page = await asked<Paged<TrajectoryLine>>(`/trajectories?offset=${offset}&limit=7`)
    expect(page).toMatchObject({ total: whole.total, offset })
    pages.push(...page.rows.map(row => row.trajectory))
  }
  expect(pages).toEqual(whole.rows.map(row => row.trajectory))
  for (const query of ['limit=501', 'offset=-1', 'reward=plenty', 'sort=up', 'step=x']) {
    const refused = await fetch(`${dashboard.url}api/runs/${run}/trajectories?${query}`)
    expect([query, refused.status]).toEqual([query, 400])
  }
  for (const path of ['/nothing', '/trajectories/none/0', '/log/runs/99']) {
    expect((await fetch(`${dashboard.url}api/runs/${run}${path}`)).status).toBeGreaterThanOrEqual(400)
  }
  expect((await fetch(`${dashboard.url}api/runs/absent`)).status).toBe(404)
  expect((await fetch(`${dashboard.url}api/runs/..%2f..%2fetc`)).status).toBe(404)
})

test('a stream that is lost and opened again gives every fact once', async () => {
  const { cursor } = await asked<Overview>()
  const total = cursor.split(',').reduce((sum, place) => sum + Number(place.split(':')[2]), 0)
  const all = await fromStream(beginning, total)
  expect(all.id).toBe(cursor)
  const pieces: StreamFact[] = []
  let id = beginning
  while (pieces.length < total) {
    const piece = await fromStream(id, 1)
    pieces.push(...piece.facts)
    id = piece.id
  }
  expect(pieces.map(fact => fact.place)).toEqual(all.facts.map(fact => fact.place))
  expect(new Set(pieces.map(fact => fact.place)).size).toBe(total)
  expect(Math.max(...all.batches)).toBeLessThanOrEqual(500)
})

test('facts that are written while the page is open reach its stream and its answers; the figures are those of `replay steps`', async () => {
  // Under a clock this slow an answer stays as old as the server's latest read of the log, unless the stream reads too.
  const [elapsed, began] = [systemEffects.elapsed, systemEffects.elapsed()]
  const clock = jest.spyOn(systemEffects, 'elapsed').mockImplementation(() => began + (elapsed() - began) / 1000)
  const { cursor, trajectories } = await asked<Overview>()
  const isStreamed = ({ topic }: { readonly topic: string }) => ['runs', 'learner', 'trajectories'].includes(topic)
  const waiting = fromStream(cursor, rest.records.filter(isStreamed).length)
  await appendRest(directory)
  const { facts } = await waiting
  expect(new Set(facts.map(fact => fact.place)).size).toBe(facts.length)
  const after = await asked<Overview>()
  clock.mockRestore()
  expect(after.trajectories).toBeGreaterThan(trajectories)
  expect(after.state).toBe('done')
  const beside = join(directory, 'beside')
  await saveHistory(beside, history)
  const recorded = await openLog({ bus: `lmdb:${beside}`, run })
  const { steps } = await runProgress(recorded)
  await recorded.close()
  expect(steps.length).toBeGreaterThan(1)
  for (const step of steps) {
    const point = after.steps.find(one => one.step === step.step)!
    expect(point).toMatchObject({ outcome: 'completed', version: step.version, rollouts: step.rollouts })
    expect(point.values.reward).toBeCloseTo(step.passAt1, 10)
    expect(point.values.toolErrorRateInPositives).toBe(step.toolErrorRateInPositives)
    expect(point.values.toolErrorRate).toBe(step.toolErrorRate)
    expect(point.values.meanTokens).toBeCloseTo(step.meanTokens, 10)
    expect(point.values.truncatedShare).toBeCloseTo(step.truncatedShare, 10)
    expect(point.values.loss).toBe(step.metrics.loss)
  }
})

test('text of the model is sent escaped, under a policy that runs no inline script', async () => {
  const page = await fetch(dashboard.url)
  expect(page.headers.get('content-security-policy')).toMatch(/default-src 'none'; script-src 'self'; style-src 'self'/)
  expect(page.headers.get('content-security-policy')).not.toContain('unsafe')
  const body = await page.text()
  expect(body).not.toMatch(/<script(?![^>]*src=)[^>]*>|https?:|onerror/)
  const { rows } = await asked<Paged<TrajectoryLine>>('/trajectories?limit=1')
  const { parts } = await asked<TrajectoryReport>(`/trajectories/${rows[0]!.trajectory}`)
  const turn = parts.filter(part => part.kind === 'turn').find(part => part.turn === 0)!
  expect(turn.text.text).toContain('</textarea><a href="javascript:hacked=1">x</a>\\u202e\\u0000\\u001b[2J')
})

test('a request with another Host or a body is refused before anything is read', async () => {
  const raw = (options: object, body = '') =>
    new Promise<number>((resolve, reject) => {
      const sent = request(`${dashboard.url}api/runs`, options, response => {
        response.resume()
        resolve(response.statusCode ?? 0)
      })
      sent.once('error', reject)
      sent.end(body)
    })
  expect(await raw({ headers: { host: 'evil.example' } })).toBe(403)
  expect(await raw({ headers: { origin: 'http://evil.example' } })).toBe(403)
  expect(await raw({ method: 'POST' }, 'x')).toBe(405)
  expect(await raw({ method: 'GET', headers: { 'content-length': '1' } }, 'x')).toBe(413)
  expect(await raw({})).toBe(200)
})

test('off loopback a token is demanded, at the start and for every answer', async () => {
  const open = { bus: `lmdb:${directory}`, port: 0, host: '0.0.0.0' }
  await expect(openDashboard(open)).rejects.toMatchObject({ code: 'dashboard.unsafe_bind' })
  const tokenFile = join(directory, 'token')
  writeFileSync(tokenFile, 'secret-token\n')
  const guarded = await openDashboard({ ...open, host: '127.0.0.1', tokenFile })
  try {
    const status = async (headers: Record<string, string>) =>
      (await fetch(`${guarded.url}api/runs`, { headers })).status
    expect(await status({})).toBe(401)
    expect(await status({ authorization: 'Bearer other' })).toBe(401)
    expect(await status({ authorization: 'Bearer secret-token' })).toBe(200)
    expect((await fetch(guarded.url)).status).toBe(200)
  } finally {
    await guarded.close()
  }
})

test('a run that writes nothing is cut off after 15 s, and is live while the writer of its log sends heartbeats', async () => {
  // The run of the other tests is over by now: its rest has been appended.
  const unfinished = join(directory, 'unfinished')
  await saveFirstPart(unfinished)
  const { log } = runDirectory(unfinished, runId(run))
  const opened = await OpenedRun.open(`lmdb:${unfinished}`, run, undefined)
  const now = jest.spyOn(systemEffects, 'now')
  try {
    const silentFor = (ms: number) => now.mockReturnValue(opened.newest.at + ms)
    silentFor(14_000)
    expect(opened.state).toBe('live')
    silentFor(3_600_000)
    expect(opened.state).toBe('cut-off')
    beat(log)
    expect(opened.state).toBe('live')
    silentFor(3_616_000)
    expect(opened.state).toBe('cut-off')
  } finally {
    now.mockRestore()
    await opened.close()
  }
})

test("a run whose recipe today's schema refuses is shown all the same: its groups without their draws", async () => {
  const old = changed(history, message =>
    message.type === 'run.started' ? { ...message, recipe: { ...message.recipe, name: 7 } } : message,
  )
  const other = join(directory, 'old')
  await saveHistory(other, old)
  const shown = await openDashboard({ bus: `lmdb:${other}`, port: 0, host: '127.0.0.1' })
  try {
    const { group } = history.records
      .map(({ message }) => message)
      .find(({ type }) => type === 'group.selected') as never as { group: string }
    const response = await fetch(`${shown.url}api/runs/${run}/groups/${group}`)
    const report = (await response.json()) as GroupReport
    expect(report).toMatchObject({ group, variants: {}, unexplained: expect.stringContaining("today's schema") })
    expect(report.members.filter(one => one.why === 'kept').length).toBeGreaterThan(1)
  } finally {
    await shown.close()
  }
})

test("a reward is positive above the recipe's positiveAbove, in every view", async () => {
  const strict = changed(history, message =>
    message.type === 'run.started'
      ? {
          ...message,
          recipe: { ...message.recipe, selection: { ...Object(message.recipe.selection), positiveAbove: 1 } },
        }
      : message,
  )
  const other = join(directory, 'strict')
  await saveHistory(other, strict)
  const shown = await openDashboard({ bus: `lmdb:${other}`, port: 0, host: '127.0.0.1' })
  const positives = async (bus: Dashboard) => {
    const of = async <T>(path: string) => (await (await fetch(`${bus.url}api/runs/${run}${path}`)).json()) as T
    const { rows } = await of<Paged<TrajectoryLine>>('/trajectories?reward=1&limit=1')
    const { trajectory } = rows[0]!
    const group = await of<GroupReport>(`/groups/${trajectory.split('/')[0]}`)
    const { siblings } = await of<TrajectoryReport>(`/trajectories/${trajectory}`)
    const lanes = await of<Lanes>(`/lanes?step=${rows[0]!.step}&limit=100`)
    const own = <T extends { readonly trajectory: string }>(all: readonly T[]) =>
      all.find(one => one.trajectory === trajectory)!
    return [rows[0]!, own(group.members), own(siblings), own(lanes.rows)].map(({ positive }) => positive)
  }
  try {
    expect(await positives(dashboard)).toEqual([true, true, true, true])
    expect(await positives(shown)).toEqual([false, false, false, false])
  } finally {
    await shown.close()
  }
})

test('a filtered list of groups counts all members of a group, and apart from them those that match', async () => {
  const { rows: whole } = await asked<Paged<GroupLine>>('/groups?limit=500')
  expect(whole.every(one => one.matching === one.size)).toBe(true)
  const { rows } = await asked<Paged<GroupLine>>('/groups?reward=1&limit=500')
  expect(rows.some(one => one.matching < one.size)).toBe(true)
  for (const one of rows)
    expect(one).toEqual({ ...whole.find(({ group }) => group === one.group)!, matching: one.positives })
})
