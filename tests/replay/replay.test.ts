/** `troupe replay` over a saved history, as a user runs it: what is listed, shown, followed, and found wrong. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encode } from '../../messages/codec'
import type { GroupSelected, TurnCompleted } from '../../messages/facts'
import { epoch, runId } from '../../messages/ids'
import type { Message } from '../../messages/topics'
import { topicOnBus } from '../../messages/topics'
import type { Fixture } from '../../replay/exchange/fixture'
import type { Verification } from '../../replay/verify/verification'
import { offsetOf, openStore, recordKey, storedTopics } from '../../runtime/bus/lmdb/store'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-replay-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
const bus = join(directory, 'sound')
beforeAll(() => saveHistory(bus, history))

async function replay(...args: readonly string[]) {
  return troupeHere(['replay', ...args, ...(args.includes('--bus') ? [] : ['--bus', `lmdb:${bus}`])])
}
const lines = (text: string) => text.trim().split('\n')
const jsonLines = (text: string) => lines(text).map(line => JSON.parse(line) as Record<string, never>)

/** The history of a directory of its own, and what verify says of it. */
let made = 0
async function verified(fixture: Fixture, extra: Parameters<typeof saveHistory>[2] = []) {
  const at = join(directory, `h${made++}`)
  await saveHistory(at, fixture, extra)
  const { code, stdout, stderr } = await replay('verify', '--json', '--bus', `lmdb:${at}`)
  expect(stderr).toBe('')
  return { at, code, ...(JSON.parse(stdout) as Verification) }
}
const turns = history.records.flatMap(r => (r.message.type === 'turn.completed' ? [r.message] : []))

test('a sound history verifies: every turn, call and reward counts once, every context has its digest', async () => {
  const { code, stdout } = await replay('verify', '--json')
  const said = JSON.parse(stdout) as Verification
  expect(said).toMatchObject({ ok: true, problems: [], running: [], outcome: 'done (all steps are done)' })
  expect(said.counted.turns).toBe(turns.length)
  expect(said.contexts).toBe(history.records.filter(r => r.message.type === 'turn.asked').length)
  expect(code).toBe(0)
  const half = JSON.parse((await replay('verify', '--json', '--sample', '30%')).stdout) as Verification
  expect(half.contexts).toBeGreaterThan(0)
  expect(half.contexts).toBeLessThan(said.contexts / 2)
})

test('a changed token, a lost fact and a wrong count are each found, with their place', async () => {
  const multi = turns.find(t => t.turn === 0 && turns.some(o => o.trajectory === t.trajectory && o.turn === 1))!
  const other = (m: Message): Message => {
    if (m !== multi) return m
    const tokens = multi.tokens.slice()
    tokens[3] = (tokens[3]! + 1) % 700
    return { ...multi, tokens }
  }
  const token = await verified(changed(history, other))
  expect(token.problems.map(p => p.kind)).toEqual(['wrong-context'])
  expect(token.code).toBe(1)

  const lost = await verified(changed(history, m => (m.type === 'turn.completed' && m === multi ? null : m)))
  expect(lost.problems.map(p => p.kind)).toContain('wrong-count')
  expect(Object.keys(lost.ignored).join()).toContain('repeated or too late')

  let told = false
  const counts = await verified(
    changed(history, m => {
      if (m.type !== 'rollout.finished' || told) return m
      told = true
      return { ...m, toolCalls: m.toolCalls + 1 }
    }),
  )
  expect(counts.problems).toMatchObject([{ kind: 'wrong-count', message: expect.stringContaining('toolCalls') }])
})

test('facts told twice, of given-up attempts and of former owners are counted as ignored, and are no fault', async () => {
  const fixture: Fixture = {
    ...history,
    records: history.records.flatMap(r => (r.message.type === 'turn.completed' ? [r, r] : [r])),
  }
  // Epochs are offsets: the records that were put in must not move the claim, which is the first.
  const said = await verified(fixture)
  expect(said.problems).toEqual([])
  expect(said.counted.turns).toBe(turns.length)
  expect(Object.values(said.ignored).reduce((a, b) => a + b, 0)).toBe(turns.length)
})

test('a record of a newer schema, an unknown type and a torn tail are named, and the rest is still shown', async () => {
  const run = runId(history.run)
  const [first] = turns
  const { key, headers, value } = encode(first as TurnCompleted, { run })
  const topic = topicOnBus(run, 'trajectories')
  const extra = [
    { topic, partition: 0, key, headers: { ...headers, version: '99' }, value },
    { topic, partition: 0, key, headers: { ...headers, type: 'turn.dreamt' }, value },
    { topic, partition: 0, key, headers, value: value.subarray(0, 7) },
  ]
  const said = await verified(history, extra)
  expect(said.code).toBe(1)
  expect(said.problems.map(p => p.kind)).toEqual(['newer-schema', 'unknown-type', 'torn-tail'])
  expect(said.counted.turns).toBe(turns.length)
  const listed = await replay('ls', '--json', '--limit', '1000', '--bus', `lmdb:${said.at}`)
  expect(jsonLines(listed.stdout)).toHaveLength(said.counted.trajectories)
  expect(listed.stderr).toContain('newer-schema')
})

test('records that are gone are a gap with its offsets, and everything around it is shown, then and now', async () => {
  const at = join(directory, 'gap')
  await saveHistory(at, history)
  const log = join(at, 'runs', history.run, 'log')
  const store = openStore(log, 'write', () => false)
  const { id } = storedTopics(store).find(({ topic }) => topic.endsWith('.trajectories'))!
  const keys = [...store.records.getKeys({ start: recordKey(id * 65_536, 0), end: recordKey(id * 65_536, 1e6) })]
  const gone = Math.floor(keys.length / 2)
  const [first, last] = [offsetOf(keys[gone - 1]!) + 1, offsetOf(keys[gone]!)]
  store.records.removeSync(keys[gone]!)
  await store.root.close()

  const named = `trajectories:0:${first} gap: offsets ${first} to ${last} are missing`
  const bus = ['--bus', `lmdb:${at}`]
  const verified = await replay('verify', ...bus)
  expect({ code: verified.code, stdout: verified.stdout }).toMatchObject({
    code: 1,
    stdout: expect.stringContaining(named.replace(' gap', '  gap')),
  })
  const whole = jsonLines((await replay('ls', '--json', '--limit', '1000')).stdout)
  const listed = await replay('ls', '--json', '--limit', '1000', ...bus)
  expect(listed.stderr).toContain(named)
  expect(jsonLines(listed.stdout).length).toBeGreaterThan(whole.length / 2)
  const before = await replay('ls', '--limit', '1000', '--at', `trajectories:0:${first - 1}`, ...bus)
  expect({ code: before.code, stderr: before.stderr }).toEqual({ code: 0, stderr: '' })
  const after = await replay('show', '--at', `trajectories:0:${last + 1}`, ...bus)
  expect({ code: after.code, stderr: after.stderr }).toEqual({ code: 0, stderr: expect.stringContaining(named) })
  const within = await replay('show', '--at', `trajectories:0:${last}`, ...bus)
  expect(within).toMatchObject({ code: 2, stderr: expect.stringMatching(/is not in the log/) })
})

test('a run that was cut off names the trajectories that still run', async () => {
  const cut = history.records.findIndex(r => r.message === turns[40])
  const records = history.records.filter((r, i) => i < cut && r.message.type !== 'run.finished')
  const said = await verified({ ...history, records })
  expect(said.problems).toEqual([])
  expect(said.outcome).toBeNull()
  expect(said.running.length).toBeGreaterThan(0)
})

test('ls filters by reward, status, tool errors, policy, purpose, text and limit', async () => {
  const all = jsonLines((await replay('ls', '--json', '--limit', '1000')).stdout) as unknown as {
    trajectory: string
    reward: number
    toolErrors: number
    policyVersions: number[]
    purpose: string
    task: string
    selection: string | null
  }[]
  const count = async (...filter: string[]) => {
    const { code, stdout } = await replay('ls', '--json', '--limit', '1000', ...filter)
    expect(code).toBe(0)
    return stdout.trim() === '' ? 0 : lines(stdout).length
  }
  expect(await count('--reward', '>0')).toBe(all.filter(t => t.reward > 0).length)
  expect(await count('--tool-errors')).toBe(all.filter(t => t.toolErrors > 0).length)
  expect(await count('--policy', '1')).toBe(all.filter(t => t.policyVersions.includes(1)).length)
  expect(await count('--purpose', 'eval')).toBe(all.filter(t => t.purpose === 'eval').length)
  expect(await count('--task', all[30]!.task)).toBe(all.filter(t => t.task === all[30]!.task).length)
  expect(await count('--selection', 'kept')).toBe(all.filter(t => t.selection === 'kept').length)
  expect(await count('--text', 'SYNTAXERROR')).toBeGreaterThan(0)
  expect(await count('--since', '1s')).toBe(0)
  expect(await count('--until', '2020-01-01')).toBe(0)
  expect(lines((await replay('ls', '--json', '--limit', '3')).stdout)).toHaveLength(3)
  const wrong = await replay('ls', '--status', 'bad')
  expect({ code: wrong.code, stderr: wrong.stderr }).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('answered'),
  })
})

test('show finds a trajectory by a part of its id, refuses an ambiguous one with the list, and prints its tokens', async () => {
  const one = await replay('show', '0001.0000/3', '--logprobs')
  expect(one.stdout).toContain('s0001.0000/3')
  expect(one.stdout).toMatch(/:-\d\.\d\d /)
  const many = await replay('show', '0000/3')
  expect(many.code).toBe(2)
  expect(many.stderr).toContain('s0001.0000/3, s0002.0000/3')
  const none = await replay('show', 'nobody')
  expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining("no trajectory matches 'nobody'") })
})

test('columns stand below their names, however long an id is', async () => {
  const long = join(directory, 'long')
  const rename = (text: string) => text.replace('s0001.0000', 'fork.of.s0001.0000.by.somebody')
  await saveHistory(
    long,
    changed(history, m => {
      if ('trajectory' in m) {
        const group = 'group' in m ? { group: rename(m.group) } : {}
        return { ...m, trajectory: rename(m.trajectory), ...group } as Message
      }
      return 'group' in m ? ({ ...m, group: rename(m.group) } as Message) : m
    }),
  )
  const [header, ...rows] = lines((await replay('ls', '--purpose', 'train', '--bus', `lmdb:${long}`)).stdout)
  const at = header!.indexOf('status')
  expect(rows.some(row => row.includes('somebody/3'))).toBe(true)
  for (const row of rows) expect(row.slice(at)).toMatch(/^(answered|truncated|failed|running) /)
})

test('turns that a trajectory has not are said, a range that ends before it begins is refused', async () => {
  const past = await replay('show', 's0001.0000/3', '--turns', '7')
  expect(past).toMatchObject({ code: 0, stderr: expect.stringMatching(/^the trajectory has turns 0 to \d+\n$/) })
  const wrong = await replay('show', 's0001.0000/3', '--turns', '4..2')
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('ends before it begins') })
})

test('a type that no fact has is refused with the nearest one, instead of waited for', async () => {
  const { code, stderr } = await replay('follow', '--type', 'turn.complete')
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining("did you mean 'turn.completed'?") })
})

test('--at shows the run as it stood at a record', async () => {
  const facts = history.records.filter(r => r.topic === 'trajectories')
  const offset = facts.findIndex(r => r.message.type === 'turn.completed' && r.message.trajectory === 's0001.0000/3')
  const then = jsonLines((await replay('show', '--json', '--at', `trajectories:0:${offset}`)).stdout)
  expect(then.at(-1)).toMatchObject({ place: `trajectories:0:${offset}`, type: 'turn.completed', turn: 0 })
  const people = (await replay('show', '--at', `trajectories:0:${offset}`)).stdout
  expect(lines(people).at(-1)).toBe('not finished')
  const { code, stderr } = await replay('show', 's0001.0000/3', '--at', 'trajectories:0:999999')
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('offsets 0 to') })
})

test('what a model wrote cannot drive the terminal', async () => {
  const evil = '\u001b]0;owned\u0007\u001b[2J\u202eabc\u009b31m'
  const target = turns[0]!.trajectory
  const hostile = changed(history, m => {
    if (m === turns[0]) return { ...turns[0]!, text: evil }
    if (!('trajectory' in m) || m.trajectory !== target) return m
    if (m.type === 'reward.assigned') return { ...m, answer: evil, how: evil }
    return m.type === 'rollout.finished' ? { ...m, reason: evil } : m
  })
  const at = join(directory, 'hostile')
  await saveHistory(at, hostile)
  for (const args of [
    ['show', turns[0]!.trajectory],
    ['follow', turns[0]!.trajectory, '--until-end'],
    ['show', turns[0]!.trajectory, '--json'],
    ['export', turns[0]!.trajectory],
  ]) {
    const { stdout } = await replay(...args, '--bus', `lmdb:${at}`)
    expect(stdout).toContain('owned')
    for (const control of ['\u001b', '\u0007', '\u202e', '\u009b']) expect(stdout).not.toContain(control)
    if (args.includes('--json')) expect(jsonLines(stdout).some(fact => (fact.text as unknown) === evil)).toBe(true)
  }
})

test('follow prints a group from its first fact to its decision, filtered by type', async () => {
  const { code, stdout } = await replay('follow', 's0001.0000', '--until-end', '--json')
  expect(code).toBe(0)
  const types = jsonLines(stdout).map(f => String(f.type))
  expect(types[0]).toBe('rollout.requested')
  expect(types).toContain('group.closed')
  const only = await replay('follow', 's0001.0000', '--until-end', '--json', '--type', 'reward.assigned')
  expect(new Set(jsonLines(only.stdout).map(f => f.type))).toEqual(new Set(['reward.assigned']))
  const { text } = turns.find(t => t.trajectory.startsWith('s0001.0000/') && t.text.includes('"'))!
  const words = text.slice(text.indexOf('"'), text.indexOf('"') + 12)
  const quoted = await replay('follow', 's0001.0000', '--until-end', '--json', '--text', words)
  expect(jsonLines(quoted.stdout).length).toBeGreaterThan(0)
  expect((await replay('follow', 's0001.0000', '--until-end', '--text', 'contextTokens')).stdout).toBe('')
})

test('show takes the decision that counts, and leaves out what a former owner said', async () => {
  const at = join(directory, 'two-owners')
  const decision = history.records.find(({ message }) => message.type === 'group.selected')!
  const selected = decision.message as GroupSelected
  const { member } = selected.kept[0]!
  const lie = { ...selected, epoch: epoch(-1), kept: selected.kept.map(k => ({ ...k, advantage: 9 })) }
  const records = history.records.flatMap(r => (r === decision ? [{ ...r, message: lie }, r] : [r]))
  await saveHistory(at, { ...history, records })
  const show = (...args: string[]) =>
    troupeHere(['replay', 'show', `${selected.group}/${member}`, '--bus', `lmdb:${at}`, ...args])
  const { stdout, stderr } = await show()
  expect(stdout).toContain(`advantage ${selected.kept[0]!.advantage.toFixed(3)}`)
  expect(stderr).toContain('1 facts do not count')
  const facts = jsonLines((await show('--json')).stdout).filter(({ type }) => type === 'group.selected')
  expect(facts.map(({ counts }) => counts)).toEqual([false, undefined])
})

test.each([
  ['.troupe', /"\.troupe" is not a valid bus address/],
  ['memory:', /ends with its process/],
])('a bus that holds no run to look at is refused as such: %s', async (address, said) => {
  const { code, stderr } = await replay('ls', '--bus', address)
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(said) })
})

test('reading leaves the log as it was, byte for byte', async () => {
  const file = join(bus, 'runs', history.run, 'log', 'data.mdb')
  const before = readFileSync(file)
  for (const args of [['ls'], ['show', 's0001.0000/3'], ['verify'], ['follow', '--until-end']]) await replay(...args)
  expect(readFileSync(file).equals(before)).toBe(true)
})
