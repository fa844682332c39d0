/** Actions of the page: who may start one, which command it is, and that it is bounded and ends with the server. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ActionLine, Actions } from '../../dashboard/apiActions'
import { RunningActions } from '../../dashboard/server/actions/runningActions'
import { type Dashboard, openDashboard } from '../../dashboard/server/openDashboard'
import { isAlive } from '../support/cli'
import { until } from '../support/until'
import { history, saveFirstPart } from './grownHistory'

jest.setTimeout(60_000)

const { run } = history
const bin = join(__dirname, '../../cli/bin.js')
const selected = history.records.find(({ message }) => message.type === 'group.selected')!.message
const { group } = selected as Extract<typeof selected, { type: 'group.selected' }>
/** Prints its arguments and its pid, and waits for a signal. */
const echo = [process.execPath, '-e', 'console.log(process.pid, ...process.argv.slice(1)); setInterval(() => {}, 1e6)']

let directory: string
const opened: Dashboard[] = []
const open = async (actions?: readonly string[]): Promise<Dashboard> => {
  const where = { bus: `lmdb:${directory}`, port: 0, host: '127.0.0.1' }
  const dashboard = await openDashboard({ ...where, ...(actions === undefined ? {} : { actions }) })
  opened.push(dashboard)
  return dashboard
}

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'troupe-actions-'))
  await saveFirstPart(directory)
})
afterEach(async () => {
  for (const dashboard of opened.splice(0)) await dashboard.close()
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const addressOf = ({ url }: Dashboard) => `${url}api/runs/${run}/actions`
const listed = async (of: Dashboard) => (await (await fetch(addressOf(of))).json()) as Actions

interface Sent {
  readonly headers?: Record<string, string>
  readonly path?: string
}

async function post(of: Dashboard, body: unknown, { headers = {}, path = '' }: Sent = {}) {
  const usual = {
    ...{ origin: new URL(of.url).origin, 'content-type': 'application/json' },
    authorization: `Bearer ${of.actionToken}`,
  }
  const all = Object.entries({ ...usual, ...headers }).filter(([, value]) => value !== '')
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  const response = await fetch(addressOf(of) + path, { method: 'POST', headers: all, body: text })
  return { status: response.status, value: (await response.json()) as ActionLine & { code?: string } }
}

test('a server that was not started with --allow-actions starts nothing', async () => {
  const dashboard = await open()
  expect(await listed(dashboard)).toEqual({ allowed: false, actions: [] })
  expect(dashboard.actionToken).toBeUndefined()
  expect(await post(dashboard, { action: 'abort' })).toMatchObject({ status: 405 })
})

test("an action needs the token, this page's origin and JSON of bounded length, on loopback too", async () => {
  const dashboard = await open(echo)
  const refused = async (headers: Record<string, string>, body: unknown = { action: 'abort' }) =>
    (await post(dashboard, body, { headers })).status
  expect(await refused({ authorization: '' })).toBe(401)
  expect(await refused({ authorization: 'Bearer other' })).toBe(401)
  expect(await refused({ origin: '' })).toBe(403)
  expect(await refused({ origin: 'http://evil.example' })).toBe(403)
  expect(await refused({ 'content-type': 'text/plain' })).toBe(415)
  expect(await refused({}, { action: 'abort', more: 'x'.repeat(5000) })).toBe(413)
  expect(await refused({}, 'no JSON')).toBe(400)
  expect(await refused({}, { action: 'remove' })).toBe(400)
  expect(await refused({}, { action: 'selection', group: '--help' })).toBe(404)
  expect(await refused({}, { action: 'fork', trajectory: `${group}/0`, turn: '1; reboot' })).toBe(400)
  expect(await listed(dashboard)).toEqual({ allowed: true, actions: [] })
})

test('each action is one troupe command about this run; a fork is a run of its own', async () => {
  const dashboard = await open(echo)
  const where = ['--bus', `lmdb:${directory}`]
  const words: readonly (readonly [object, RegExp | string])[] = [
    [{ action: 'abort' }, ['control', run, 'abort', ...where].join(' ')],
    [{ action: 'fork', trajectory: `${group}/0`, turn: 1 }, /^replay fork \S+\/0 --from-turn 1 --as fork-\S+ --bus/],
    [{ action: 'rescore', target: group }, ['replay', 'rescore', group, ...where, '--run', run].join(' ')],
  ]
  for (const [request, expected] of words) {
    const { status, value } = await post(dashboard, request)
    expect({ status, state: value.state }).toEqual({ status: 202, state: 'running' })
    const printed = async () => (await listed(dashboard)).actions.find(({ id }) => id === value.id)!.output.text.trim()
    await until(async () => (await printed()) !== '')
    const text = (await printed()).replace(/^\d+ /, '')
    if (typeof expected === 'string') expect(text).toBe(expected)
    else expect(text).toMatch(expected)
    expect(value.command).toBe(`npx troupe ${text}`)
  }
  const [, fork] = (await listed(dashboard)).actions
  expect(fork!.opens).toMatch(new RegExp(`^fork-${run}-`))
})

test('one action of a kind runs for a run at a time; it can be stopped, and ends with the server', async () => {
  const dashboard = await open(echo)
  const first = await post(dashboard, { action: 'rescore', target: group })
  expect(await post(dashboard, { action: 'selection', group })).toMatchObject({
    status: 409,
    value: { code: 'dashboard.action_running' },
  })
  expect((await post(dashboard, { action: 'pause' })).status).toBe(202)
  await post(dashboard, {}, { path: `/${first.value.id}/stop` })
  const stateOf = async () => (await listed(dashboard)).actions.find(({ id }) => id === first.value.id)!.state
  await until(async () => (await stateOf()) === 'failed')
  await until(async () => (await listed(dashboard)).actions[0]!.output.text !== '')
  const pid = Number(/^\d+/.exec((await listed(dashboard)).actions[0]!.output.text)![0])
  expect(isAlive(pid)).toBe(true)
  await dashboard.close()
  opened.splice(0)
  expect(isAlive(pid)).toBe(false)
})

test('what the command prints is shown: the selection of a group, explained', async () => {
  const dashboard = await open([process.execPath, bin])
  const { value } = await post(dashboard, { action: 'selection', group })
  await until(async () => (await listed(dashboard)).actions[0]!.state !== 'running', 30_000)
  const [ended] = (await listed(dashboard)).actions
  expect(ended).toMatchObject({ id: value.id, state: 'done', exitCode: 0 })
  expect(ended!.output.text).toContain("today's code selects as recorded")
})

test('the run of a fork is named once the fork has said that it exists', async () => {
  const says = "setTimeout(() => console.error('run fork-x: forked'), 300); setTimeout(() => {}, 1e6)"
  const actions = new RunningActions([process.execPath, '-e', says])
  expect(actions.start(run, { action: 'fork', words: [], opens: 'fork-x' }).opens).toBeNull()
  await until(async () => actions.list(run)[0]!.opens === 'fork-x')
  await actions.close()
})

test('an action that runs stays in the list, however many come after it', async () => {
  const actions = new RunningActions([
    process.execPath,
    '-e',
    "if (process.argv[1] === 'stay') setInterval(() => {}, 1e6)",
  ])
  const work = actions.start(run, { action: 'resume', words: ['stay'], opens: null })
  const ended = () => actions.list(run).every(({ id, state }) => id === work.id || state !== 'running')
  for (let n = 0; n < 22; n++) {
    actions.start(run, { action: 'rescore', words: [], opens: null })
    await until(ended, 10_000, 5)
  }
  expect(actions.list(run).find(({ id }) => id === work.id)).toMatchObject({ state: 'running' })
  expect(actions.list(run).length).toBeLessThanOrEqual(21)
  await actions.close()
})
