/** A whole evaluation, small: a random model, the real engine, sandbox and grader, driven by the command line. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { modelOf } from '../../actors/run/model'
import type { Message } from '../../messages'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { messagesOf, troupe } from '../support/cli'
import { until } from '../support/until'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const turnsOf = (facts: readonly Message[]) =>
  facts.flatMap(f => (f.type === 'turn.completed' ? [`${f.trajectory}#${f.turn}`] : []))

/** A second torch thread gains nothing at this size, and waits at every barrier. */
const oneThread = ['--set', 'engine.threads=1']
let model: Awaited<ReturnType<typeof modelOf>>
beforeAll(async () => {
  const { recipe, config } = loadRecipe('quickstart', [
    'coldStart.demonstrations=200',
    'model.config.max_position_embeddings=2048',
  ])
  const demonstrations = () => recipe.demonstrations!(config.value)
  model = await modelOf(config.value, join(directory, 'model'), demonstrations)
})

test('an evaluation that is killed goes on, generates no finished turn again, and counts each answer once', async () => {
  const data = join(directory, 'gsm8k.jsonl')
  const rows = Array.from({ length: 6 }, (_, n) => ({ question: `What is ${n} + ${n}?`, answer: `#### ${2 * n}` }))
  writeFileSync(data, `${rows.map(row => JSON.stringify(row)).join('\n')}\nnot a row\n`)
  const bus = join(directory, 'bus')
  const args = ['eval', 'gsm8k', '--json', '--bus', `lmdb:${bus}`]
  const limits = ['--samples', '8', '--max-tokens', '160', '--turns', '4']
  const how = ['--model', model.directory, '--data', data, ...limits, ...oneThread]
  // One answer at a time, so that it is killed long before it would end.
  const first = troupe([...args, ...how, '--run', 'r', '--set', 'engine.maxSequences=1'])
  let before: Message[] = []
  await until(
    async () => {
      if (first.process.exitCode !== null) throw new Error((await first.done).stderr)
      before = await messagesOf(bus, 'r', 'trajectories')
      return turnsOf(before).length >= 3
    },
    120_000,
    10,
  )
  first.process.kill('SIGKILL')
  expect((await first.done).stderr).toContain('1 rows dropped: not JSON')
  before = await messagesOf(bus, 'r', 'trajectories')
  expect(before.filter(f => f.type === 'rollout.finished').length).toBeLessThan(48) // it did not end by itself

  const { code, stdout, stderr } = await troupe([...args, '--resume', 'r', '--set', 'engine.maxSequences=16']).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const lines = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Record<string, unknown>)
  expect(lines).toMatchObject([
    { type: 'evaluation', n: 6 },
    { type: 'summary', run: 'r', outcome: 'done' },
  ])
  const after = turnsOf(await messagesOf(bus, 'r', 'trajectories'))
  expect(new Set(after).size).toBe(after.length)
  expect(after).toEqual(expect.arrayContaining(turnsOf(before)))
})

test('eval all that is killed goes on: what was done is read, what was cut off goes on, what had not begun begins', async () => {
  const data = join(directory, 'some')
  mkdirSync(data)
  const put = (name: string, ...rows: object[]) =>
    writeFileSync(join(data, name), rows.map(row => `${JSON.stringify(row)}\n`).join(''))
  put('aime24.jsonl', { problem: 'What is 1 + 1?', answer: '2' })
  put('aime25.jsonl', { problem: 'What is 2 + 2?', answer: '4' })
  put('gsm8k.jsonl', { question: 'What is 3 + 3?', answer: '#### 6' })
  const bus = join(directory, 'bus-some')
  const report = join(directory, 'some.md')
  const args = ['eval', 'all', '--json', '--bus', `lmdb:${bus}`, '--model', model.directory, '--data', data]
  const limits = ['--samples', '16', '--max-tokens', '160', '--turns', '4']
  // While the file `pace` exists a reward takes 2 s, so that the second evaluation is killed long before it would end.
  const pace = join(directory, 'pace')
  const reward = `reward.file=${join(__dirname, '../support/pacedParity.py')}`
  const paced = ['--set', 'reward.name=python', '--set', reward, '--set', 'reward.processes=1']
  const how = [...limits, '--report', report, ...oneThread, ...paced]
  const pacedTroupe = (args: readonly string[]) => troupe(args, { TROUPE_TEST_PACE: pace })
  const first = pacedTroupe([...args, ...how, '--run', 'r'])
  const turns = async (name: string) => turnsOf(await messagesOf(bus, `r-${name}`, 'trajectories').catch(() => []))
  await until(
    async () => {
      if (first.process.exitCode !== null) throw new Error((await first.done).stderr)
      if (!existsSync(join(bus, 'runs/r-aime25/log'))) return false
      writeFileSync(pace, '')
      return (await turns('aime25')).length >= 3
    },
    120_000,
    10,
  )
  first.process.kill('SIGKILL')
  await first.done
  rmSync(pace)
  const [done, cut] = [await turns('aime24'), await turns('aime25')]
  expect(existsSync(join(bus, 'runs/r-gsm8k'))).toBe(false) // it did not end by itself

  const { code, stdout, stderr } = await pacedTroupe([...args, ...how, '--resume', 'r']).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const lines = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Record<string, unknown>)
  expect(lines).toMatchObject(
    ['aime24', 'aime25', 'gsm8k'].flatMap(name => [
      { type: 'evaluation', n: 1 },
      { type: 'summary', run: `r-${name}`, outcome: 'done' },
    ]),
  )
  expect(await turns('aime24')).toEqual(done)
  const after = await turns('aime25')
  expect(new Set(after).size).toBe(after.length)
  expect(after).toEqual(expect.arrayContaining(cut))
  const json = JSON.parse(readFileSync(report.replace('.md', '.json'), 'utf8')) as object[]
  expect(json).toMatchObject([{ benchmark: 'aime24' }, { benchmark: 'aime25' }, { benchmark: 'gsm8k' }])
})

test('eval all runs every benchmark whose file is there, judges each in its own way, and reports them together', async () => {
  const data = join(directory, 'all')
  mkdirSync(data)
  const put = (name: string, ...rows: object[]) =>
    writeFileSync(join(data, name), rows.map(row => `${JSON.stringify(row)}\n`).join(''))
  writeFileSync(
    join(data, 'gpqa_diamond.csv'),
    'Record ID,Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\nr1,"1, or 2?",1,2,3,4\n',
  )
  const rows = [
    {
      key: 1,
      prompt: 'Say',
      instruction_id_list: ['punctuation:no_comma', 'detectable_format:title'],
      kwargs: [{}, {}],
    },
  ]
  put('ifeval.jsonl', ...rows)
  const weather = {
    name: 'weather',
    parameters: { type: 'dict', properties: { city: { type: 'string' } }, required: ['city'] },
  }
  const question = [[{ role: 'user', content: 'Rain in Rome?' }]]
  put(
    'bfcl.jsonl',
    { id: 'simple_0', question, function: [weather] },
    { id: 'irrelevance_0', question, function: [weather] },
  )
  put('bfcl.answers.jsonl', { id: 'simple_0', ground_truth: [{ weather: { city: ['Rome'] } }] })
  put(
    'arena-hard.jsonl',
    { question_id: 'a', turns: [{ content: 'Say' }] },
    { question_id: 'b', turns: [{ content: 'More' }] },
  )
  put(
    'arena-hard.baseline.jsonl',
    ...['a', 'b'].map(question_id => ({ question_id, choices: [{ turns: [{ content: `base ${question_id}` }] }] })),
  )
  const judge = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const refuses = body.includes('base b')
    const message = refuses ? { content: null, refusal: 'no' } : { content: '[[A>B]]' }
    response.end(JSON.stringify({ choices: [{ message }] }))
  })
  await new Promise<void>(resolve => judge.listen(0, '127.0.0.1', resolve))
  const report = join(directory, 'report.md')
  try {
    const { port } = judge.address() as AddressInfo
    const bus = `lmdb:${join(directory, 'bus-all')}`
    const judged = ['--judge', `http://127.0.0.1:${port}/v1`, '--judge-model', 'j']
    const how = ['--samples', '2', '--max-tokens', '40', ...judged, ...oneThread]
    const args = ['eval', 'all', '--json', '--bus', bus, '--model', model.directory, '--data', data, '--report', report]
    const { code, stdout, stderr } = await troupe([...args, ...how, '--run', 'r']).done
    // Of one of Arena-Hard's two problems no answer was judged.
    expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 1 })
    expect(stderr).toContain('Arena-Hard: only 1 of 2 problems have a judged answer')
    expect(stderr).toContain('aime24: skipped, no aime24.jsonl')
    expect(stderr).toContain('answers without a reward, by reason: (verifier.judge_refused 2)')
    const lines = stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line) as { type: string; metrics?: object })
    expect(lines.filter(({ type }) => type === 'evaluation')).toMatchObject([
      { n: 1, metrics: { unjudged: 0 } },
      { n: 1 },
      { n: 2 },
      { n: 1, passAt1: 0.5, metrics: { unjudged: 2 } },
    ])
  } finally {
    await new Promise(resolve => judge.close(resolve))
  }
  const markdown = readFileSync(report, 'utf8')
  expect(markdown).toMatch(/\| Arena-Hard +\| 50\.0 ± 0\.0 %/)
  expect(markdown).toContain('without a reward, not counted | 2 (verifier.judge_refused 2)')
  expect(markdown).toContain('![Beside the paper](report.svg)')
  expect(readFileSync(report.replace('.md', '.svg'), 'utf8')).toMatch(
    /^<svg [^>]+>[\s\S]*GPQA Diamond · this model[\s\S]*<\/svg>\n$/,
  )
  const json = JSON.parse(readFileSync(report.replace('.md', '.json'), 'utf8')) as object[]
  expect(json).toMatchObject([
    { benchmark: 'gpqa' },
    { benchmark: 'ifeval' },
    { benchmark: 'bfcl' },
    { benchmark: 'arena-hard', passAt1: 0.5 },
  ])
})
