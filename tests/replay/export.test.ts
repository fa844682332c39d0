/** Trajectories out of a run and into another: to the bit, as text that does nothing, within bounds; and what came of what. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync, gzipSync } from 'node:zlib'
import { advantages } from '../../kernels'
import type { StepStarted, TurnCompleted } from '../../messages/facts'
import { type AtifTrajectory, atifTrajectory } from '../../replay/exchange/atif'
import type { ExportedTrajectory } from '../../replay/exchange/exportedTrajectory'
import type { Lineage } from '../../replay/learning/lineage'
import type { Verification } from '../../replay/verify/verification'
import { pythonPath } from '../../runtime/python'
import { troupe } from '../support/cli'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(90_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-replay-export-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
const bus = `lmdb:${join(directory, 'bus')}`
beforeAll(() => saveHistory(join(directory, 'bus'), history))
const replay = (...args: readonly string[]) =>
  troupeHere(['replay', ...args, ...(args.includes('--bus') ? [] : ['--bus', bus, '--run', 'history'])])
const jsonLines = <T>(text: string) =>
  text
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as T)
const turns = history.records.flatMap(r => (r.message.type === 'turn.completed' ? [r.message] : []))
const started = history.records.flatMap(r => (r.message.type === 'step.started' ? [r.message as StepStarted] : []))

test('an exported trajectory has every id and logprob to the bit, aligned with its mask and policy', async () => {
  const own = turns.filter(t => t.trajectory === 's0001.0000/0')
  const [line] = jsonLines<ExportedTrajectory>((await replay('export', 's0001.0000/0')).stdout)
  expect(line!.turns).toHaveLength(own.length)
  for (const [k, { start, end }] of line!.turns.entries()) {
    expect(line!.tokens.slice(start, end)).toEqual([...own[k]!.tokens])
    expect(Float32Array.from(line!.engineLogprobs.slice(start, end))).toEqual(own[k]!.logprobs)
    expect(new Set(line!.mask.slice(start, end))).toEqual(new Set([1]))
  }
  expect(line!.mask.reduce((a, b) => a + b, 0)).toBe(own.reduce((n, t) => n + t.tokens.length, 0))
  expect(line!.messages.map(m => m.role)).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant'])
  const [call] = line!.messages[1]!.tool_calls!
  expect(JSON.parse(call!.function.arguments)).toHaveProperty('code')
  expect(line!.messages[2]).toMatchObject({ tool_call_id: call!.id })
})

test('a trajectory in ATIF has a step for each turn, with its ids and logprobs, its calls and what the model was shown', async () => {
  const [line] = jsonLines<ExportedTrajectory>((await replay('export', 's0001.0000/0')).stdout)
  const [atif] = jsonLines<AtifTrajectory>((await replay('export', 's0001.0000/0', '--format', 'atif')).stdout)
  expect(atif!.steps.map(({ step_id, source }) => [step_id, source])).toEqual([
    ...[
      [1, 'user'],
      [2, 'agent'],
      [3, 'agent'],
      [4, 'agent'],
    ],
  ])
  const own = turns.filter(t => t.trajectory === 's0001.0000/0')
  atif!.steps.slice(1).forEach(({ metrics }, k) => {
    expect(metrics!.completion_token_ids).toEqual([...own[k]!.tokens])
    expect(Float32Array.from(metrics!.logprobs)).toEqual(own[k]!.logprobs)
    expect(metrics!.prompt_tokens).toBe(line!.turns[k]!.start)
  })
  const { tool_calls: calls = [], observation } = atif!.steps[1]!
  expect(calls[0]!.arguments).toEqual(JSON.parse(line!.messages[1]!.tool_calls![0]!.function.arguments))
  expect(observation!.results).toEqual([
    { source_call_id: calls[0]!.tool_call_id, content: line!.messages[2]!.content },
  ])
  expect(atif!.final_metrics).toMatchObject({
    total_completion_tokens: own.reduce((sum, { tokens }) => sum + tokens.length, 0),
    extra: { reward: line!.reward },
  })
})

test('a call whose arguments are no JSON object is in ATIF as it was written', () => {
  const message = {
    role: 'assistant',
    content: '',
    tool_calls: [{ id: 'c', type: 'function', function: { name: 'x', arguments: '{oops' } }],
  } as const
  const exported = { messages: [message], turns: [], tokens: [], engineLogprobs: [], task: { id: 't' } }
  const { steps } = atifTrajectory(exported as unknown as ExportedTrajectory)
  expect(steps[0]!.tool_calls![0]!.arguments).toEqual({ malformed: '{oops' })
})

test('kept trajectories say the step that trained on them, and their advantages follow from their rewards', async () => {
  const kept = jsonLines<ExportedTrajectory>((await replay('export', '--all', '--kept')).stdout)
  const inSteps = started.flatMap(s => s.trajectories.map(t => [t, s.step]))
  expect(Object.fromEntries(kept.map(l => [l.trajectory, l.trainedIn!.step]))).toMatchObject(
    Object.fromEntries(inSteps),
  )
  const group = kept.filter(l => l.group === kept[0]!.group).sort((a, b) => a.member - b.member)
  expect(group.map(l => l.advantage)).toEqual(advantages(group.map(l => l.reward!)))
})

test('from the exported lines alone the recorded loss of the step comes out', async () => {
  const all = jsonLines<ExportedTrajectory>((await replay('export', '--all', '--kept')).stdout)
  const lines = all.filter(l => l.trainedIn?.step === 1)
  const file = join(directory, 'step1.jsonl')
  writeFileSync(file, lines.map(l => JSON.stringify(l)).join('\n'))
  // The first inner step: old and new policy are one, so the loss is -sum(advantage) over tokens, by their number.
  const program = `
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
total = sum(sum(r['mask'][:r['trainedTokens']]) for r in rows)
print(-sum(r['advantage'] * sum(r['mask'][:r['trainedTokens']]) for r in rows) / total, total)`
  const [loss, total] = execFileSync(pythonPath(), ['-c', program, file], { encoding: 'utf8' }).split(' ').map(Number)
  const step = history.records.flatMap(r =>
    r.message.type === 'step.completed' && r.message.step === 1 ? [r.message] : [],
  )[0]!
  expect(total).toBe(step.metrics.trainedTokens)
  expect(loss).toBeCloseTo(step.metrics.loss!, 5)
})

test('a step is a target: all of its groups', async () => {
  const { stdout } = await replay('export', 's0002')
  const ids = stdout
    .trim()
    .split('\n')
    .map(line => (JSON.parse(line) as ExportedTrajectory).trajectory as string)
  const all = history.records.flatMap(({ message: m }) => (m.type === 'rollout.requested' ? [m.trajectory] : []))
  expect(ids).toEqual(all.filter(id => id.startsWith('s0002.')))
  expect((await replay('export', 's0009')).stderr).toContain("no trajectory matches 's0009'")
})

test('what was exported is imported as a run of its own that verifies and exports the same again', async () => {
  const file = join(directory, 'all.jsonl')
  expect((await replay('export', '--all', '--out', file)).code).toBe(0)
  const other = `lmdb:${join(directory, 'imported')}`
  const said = await replay('import', file, '--as', 'copy', '--bus', other, '--json')
  expect(JSON.parse(said.stdout)).toMatchObject({ run: 'copy', trajectories: 88 })
  const sound = JSON.parse((await replay('verify', '--json', '--bus', other)).stdout) as Verification
  expect(sound).toMatchObject({ ok: true, problems: [] })
  expect(sound.counted.turns).toBe(turns.length)
  const again = jsonLines<ExportedTrajectory>((await replay('export', '--all', '--bus', other)).stdout)
  const before = jsonLines<ExportedTrajectory>(readFileSync(file, 'utf8'))
  const plain = ({ run: _, trainedIn: __, loss: ___, ...rest }: ExportedTrajectory) => rest
  expect(again.map(plain)).toEqual(before.map(plain))
  const ran = (await replay('run', '--all', '--run', 'copy', '--bus', other)).stdout
  expect(ran).toMatch(/: 0 decisions are as recorded \(\d+ copied by a fork or an import, not compared\)/)
  const twice = await replay('import', file, '--as', 'copy', '--bus', other)
  expect(twice).toMatchObject({ code: 2, stderr: expect.stringContaining("run 'copy' exists already") })
})

test("a fixture of one trajectory holds its group, and replays under today's code", async () => {
  const file = join(directory, 'group.jsonl.gz')
  await replay('export', 's0002.0001/3', '--format', 'fixture', '--out', file)
  const other = `lmdb:${join(directory, 'fixture')}`
  expect((await replay('import', file, '--as', 'one', '--bus', other)).code).toBe(0)
  const ran = await replay('run', '--all', '--bus', other)
  expect({ code: ran.code, stdout: ran.stdout }).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('no decision differs'),
  })
})

test("verl's rollout dumps are imported: a group a prompt, the score as reward", async () => {
  const dump = join(directory, 'verl')
  mkdirSync(dump)
  for (const step of [1, 2]) {
    const lines = [0, 1, 2, 3].map(k => ({
      input: `question ${k % 2}`,
      output: `\u001b[31mreply ${k}`,
      gts: '4',
      score: k / 3,
      step,
    }))
    writeFileSync(join(dump, `${step}.jsonl`), lines.map(l => JSON.stringify(l)).join('\n'))
  }
  const other = `lmdb:${join(directory, 'verl-bus')}`
  expect((await replay('import', dump, '--bus', other)).stdout).toContain('8 trajectories')
  expect((await replay('verify', '--bus', other)).code).toBe(0)
  const listed = jsonLines<{ trajectory: string; reward: number; step: number }>(
    (await replay('ls', '--json', '--bus', other)).stdout,
  )
  expect(listed.filter(l => l.step === 2).map(l => [l.trajectory, l.reward])).toEqual([
    ['s0002.0000/0', 0],
    ['s0002.0000/1', 2 / 3],
    ['s0002.0001/0', 1 / 3],
    ['s0002.0001/1', 1],
  ])
  expect((await replay('show', 's0002.0001/1', '--bus', other)).stdout).toContain('\\u001b[31mreply 3')
})

test('a broken or oversized import is refused with the line, and leaves no run behind', async () => {
  const [good] = (await replay('export', 's0001.0000/0')).stdout.trim().split('\n')
  const line = JSON.parse(good!) as ExportedTrajectory
  const cases: [string, string][] = [
    ['not json\n', 'line 1 is not valid JSON'],
    [`${good}\n${good}\n`, 's0001.0000/0 occurs twice'],
    [JSON.stringify({ ...line, mask: line.mask.slice(1) }), 'mask has'],
    [JSON.stringify({ ...line, tokens: line.tokens.map(() => -1) }), 'tokens contains a value that is not a token id'],
    [JSON.stringify({ ...line, group: '../../etc' }), 'group'],
    [JSON.stringify({ ...line, turns: line.turns.slice(1) }), 'expected turn 0'],
    ['{"some":"thing"}', 'input'],
    ['', 'the file has no lines'],
  ]
  const other = join(directory, 'refused')
  const fixtureFile = join(__dirname, '../histories/quickstart.v1.jsonl.gz')
  for (const [i, [content, message]] of cases.entries()) {
    const file = join(directory, `bad${i}.jsonl`)
    writeFileSync(file, content)
    const { code, stderr } = await replay('import', file, '--bus', `lmdb:${other}`)
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining(message) })
  }
  writeFileSync(join(directory, 'large.jsonl'), Buffer.alloc(2 * 1024 * 1024, 'x'))
  const large = await replay('import', join(directory, 'large.jsonl'), '--max-mb', '1', '--bus', `lmdb:${other}`)
  expect(large.stderr).toContain('2.0 MiB; the limit is 1 MiB')
  const [head, ...records] = gunzipSync(readFileSync(fixtureFile)).toString('utf8').trim().split('\n')
  const placed = (partition: number) => JSON.stringify({ ...JSON.parse(records[0]!), partition })
  for (const [lines, message] of [
    [[head!, placed(7)], 'line 2 names partition 7'],
    [[JSON.stringify({ ...JSON.parse(head!), partitions: 0 }), records[0]!], 'line 1 is not the header'],
    [[head!, ...Array<string>(200).fill(records[0]!.padEnd(10_000))], 'unpacks to over 1 MiB'],
  ] as const) {
    writeFileSync(join(directory, 'bad.gz'), gzipSync(lines.join('\n')))
    const { code, stderr } = await replay(
      'import',
      join(directory, 'bad.gz'),
      '--max-mb',
      '1',
      '--bus',
      `lmdb:${other}`,
    )
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining(message) })
  }
  expect(() => readdirSync(other)).toThrow()
})

test('a page holds what was written as text alone, under a policy that lets nothing run or load', async () => {
  const evil = '<script>alert(1)</script><img src=x onerror="alert(2)">\u202e</pre>'
  const at = join(directory, 'evil')
  const first = turns.find(t => t.trajectory === 's0001.0000/0')!
  await saveHistory(
    at,
    changed(history, m => (m === first ? { ...(m as TurnCompleted), text: `${first.text}${evil}` } : m)),
  )
  const { stdout } = await replay('export', 's0001.0000/0', '--format', 'html', '--bus', `lmdb:${at}`)
  expect(stdout).toContain("default-src 'none'")
  expect(stdout).not.toMatch(/<script|<img|<iframe|<link|javascript:|\u202e/i)
  expect(stdout).toContain('&lt;script&gt;alert(1)')
  expect(stdout).not.toMatch(/<[^>]+\s(src|href|on\w+)=/i)
  const pages = join(directory, 'pages')
  await replay('export', 's0001.0000', '--format', 'html', '--out', pages)
  expect(readdirSync(pages)).toHaveLength(8)
})

test('a step that was rejected, or is not over, has trained on nothing', async () => {
  const at = join(directory, 'rejected')
  const [first, second] = [...new Set(started.map(({ step }) => step))]
  await saveHistory(
    at,
    changed(history, m => {
      if (m.type !== 'step.completed') return m
      if (m.step === second) return null
      const { at: when, step, epoch, metrics } = m
      return step === first ? { type: 'step.rejected', at: when, step, epoch, reason: 'it diverged', metrics } : m
    }),
  )
  const there = (...args: string[]) => troupeHere(['replay', ...args, '--bus', `lmdb:${at}`])
  const lineage = (step: number) => there('lineage', String(step), '--json').then(r => jsonLines<Lineage>(r.stdout))
  for (const [step, outcome] of [
    [first!, 'rejected'],
    [second!, 'open'],
  ] as const) {
    const all = await lineage(step)
    expect(all.length).toBeGreaterThan(0)
    for (const one of all) expect(one).toMatchObject({ trainedIn: null, triedIn: { step, outcome } })
  }
  expect((await there('lineage', String(first))).stdout).toContain(
    `step ${first}, which was rejected, was to learn from it`,
  )
  const kept = jsonLines<ExportedTrajectory>((await there('export', '--all', '--kept')).stdout)
  expect(new Set(kept.map(({ trainedIn }) => trainedIn!.step)).has(first!)).toBe(false)
})

test('what cannot be written, or is no number, is said in a line', async () => {
  const file = join(directory, 'a-file')
  writeFileSync(file, '')
  const nowhere = join(file, 'x')
  for (const args of [
    ['entropy', 's0001.0000/0', '--html', nowhere],
    ['steps', '--picture', nowhere],
    ['export', 's0001.0000', '--format', 'html', '--out', nowhere],
    ['export', 's0001.0000/0', '--out', nowhere],
  ]) {
    const ran = args.includes('--picture') ? troupe(['replay', ...args, '--bus', bus]).done : replay(...args)
    const { code, stderr } = await ran
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('cli.cannot_write') })
    expect(stderr).not.toContain('    at ')
  }
  expect((await replay('export', '--all', '--format', 'sft', '--min-reward', 'abc')).code).toBe(2)
})

test('SFT data are right answers without failed calls, one a task, none of them held out', async () => {
  const lines = jsonLines<{
    trajectory: string
    task: string
    reward: number
    messages: { role: string; content: string }[]
  }>((await replay('export', '--all', '--format', 'sft')).stdout)
  expect(lines.length).toBeGreaterThan(3)
  expect(new Set(lines.map(l => l.task)).size).toBe(lines.length)
  for (const { task, reward, messages } of lines) {
    expect(task).not.toContain('/eval/')
    expect(reward).toBe(1)
    expect(messages.at(-1)).toMatchObject({ role: 'assistant', content: expect.not.stringContaining('<|im_end|>') })
  }
})

test('lineage goes from a step down to its calls, and from the text of a call up to the steps that learned from it', async () => {
  const step = jsonLines<Lineage>((await replay('lineage', '2', '--json')).stdout)
  expect(step.map(d => d.trajectory).sort()).toEqual([...started[1]!.trajectories].sort())
  for (const d of step) expect(d).toMatchObject({ trainedIn: 2, publishedAs: 2, selection: 'kept' })
  const failed = jsonLines<Lineage>((await replay('lineage', '--text', 'was never closed', '--json')).stdout)
  expect(failed.length).toBeGreaterThan(0)
  for (const d of failed) for (const call of d.calls) expect(call.status).toBe('error')
  const one = await replay('lineage', started[0]!.trajectories[0]!)
  expect(one.stdout).toContain('step 1 learned from it')
  expect((await replay('lineage', '77')).stderr).toContain('step 77 never started')
})
