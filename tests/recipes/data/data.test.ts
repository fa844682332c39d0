/** `troupe data`: every row accounted for, filters as said, the same file from the same rows and seed. */
import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import fc from 'fast-check'
import { decontaminator } from '../../../recipes/data/decontaminate'
import { hubFiles } from '../../../recipes/data/hub'
import { prepare } from '../../../recipes/data/prepare'
import type { ReadRow } from '../../../recipes/data/rows'
import { problemSets } from '../../../recipes/data/sets'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { publishedData } from '../../support/publishedData'

const folder = mkdtempSync(join(tmpdir(), 'troupe-data-'))
const real = join(publishedData, 'math')
const servers: Server[] = []
afterAll(() => {
  for (const server of servers) server.closeAllConnections()
  for (const server of servers) server.close()
  rmSync(folder, { recursive: true })
})

const file = (name: string) => join(folder, name)
function write(name: string, rows: readonly unknown[]): string {
  writeFileSync(file(name), rows.map(row => (typeof row === 'string' ? row : JSON.stringify(row))).join('\n'))
  return file(name)
}

interface Ran {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

async function data(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  const bin = join(__dirname, '../../../cli/bin.js')
  const options = { env: { ...process.env, ...env }, timeout: 60_000, cwd: folder }
  try {
    return { code: 0, ...(await promisify(execFile)(process.execPath, [bin, 'data', ...args], options)) }
  } catch (thrown) {
    const { code, stdout, stderr } = thrown as Ran
    return { code, stdout, stderr }
  }
}

const reportOf = async (args: readonly string[]) => JSON.parse((await data([...args, '--json'])).stdout)
const written = (name: string) =>
  readFileSync(file(name), 'utf8')
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))

async function* rowsOf(rows: readonly unknown[]): AsyncGenerator<ReadRow> {
  for (const [at, row] of rows.entries()) yield { row, place: `t:${at + 1}` }
}

const dapo = problemSets.get('dapo')!
const openmath = problemSets.get('openmath')!

test('dapo: integer answers stay, in whichever of its published forms; the rest is counted by reason', async () => {
  const from = write('dapo.jsonl', [
    { prompt: 'What is one and one?', solution: '2', reward_model: { ground_truth: '2' } },
    {
      prompt: [
        {
          role: 'user',
          content:
            'Solve the following math problem step by step. The last line of your response should be of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is two and two?\n\nRemember to put your answer on its own line after "Answer:".',
        },
      ],
      reward_model: { ground_truth: '4' },
    },
    { problem: 'What is one   and one ?', answer: '2' },
    { problem: 'A half of one?', answer: '\\frac{1}{2}' },
    { problem: 'Ten to the thirty?', answer: `1${'0'.repeat(30)}` },
    { problem: 'Twice told?', answer: '3' },
    { problem: 'Twice told?', answer: '5' },
    { problem: 'A thousand?', answer: '1,000' },
    'no JSON',
    { answer: '7' },
    { prompt: 'Remember to put your answer on its own line after "Answer:".', solution: '1' },
  ])
  const report = await reportOf([
    'dapo',
    '--from',
    from,
    '--out',
    'dapo.out',
    '--order',
    'published',
    '--largest-bad-share',
    '0.5',
  ])
  expect(report).toMatchObject({
    rows: 11,
    kept: 3,
    broken: { 'not JSON': 1, 'no prompt': 2 },
    brokenAt: ['dapo.jsonl:9', 'dapo.jsonl:10', 'dapo.jsonl:11'],
    dropped: {
      'repeats the problem of an earlier row': 2,
      'answer is not an integer': 1,
      'integer of more than 18 digits': 1,
      'rows with this problem have different answers': 1,
    },
  })
  expect(written('dapo.out')).toMatchObject([
    { problem: 'What is one and one?', answer: '2', source: 'dapo' },
    { problem: 'What is two and two?', answer: '4' },
    { problem: 'A thousand?', answer: '1000' },
  ])
})

const keptOf = async (texts: readonly string[]) =>
  (await prepare(rowsOf(texts.map(problem => ({ problem, answer: 1 }))), { set: dapo, integer: true })).problems

test.each([
  ['What is 1.5 times 2?', 'What is 15 times 2?', 'What is 1 5 times 2?', 'What is .15 times 2?'],
  ['Compute 5!', 'Compute 5.', 'Compute 5!!'],
  ['Simplify 1 1/2 + 2', 'Simplify 11/2 + 2', 'Simplify 1, 1/2 + 2', 'Simplify 1½ + 2'],
  ['Find $A + b$.', 'Find $a + B$.', 'Find $AB$.', 'Find $A, B$.', 'Find $A : B$.'],
  ['What is 5² + 1?', 'What is 52 + 1?'],
  ['Evaluate \\Delta + 10:30', 'Evaluate \\delta + 10:30', 'Evaluate \\delta + 1030'],
  ['a', 'A', '!', '?'],
])('%s is another problem than what looks like it', async (...texts) => {
  const kept = await keptOf(texts)
  expect(kept.map(({ problem }) => problem)).toEqual(texts)
  expect(new Set(kept.map(({ id }) => id)).size).toBe(texts.length)
})

test.each([
  ['What is $x + 1$, then?', 'what is x+1 then', 'WHAT  is $x+1$ , then ?'],
  ['Compute 5', 'Compute 5.', 'Compute $5$.'],
  ['Let f(x) = 2. Find $f(1)$.', 'Let $f(x)=2$\nFind $f(1)$'],
  ['Find \\int x\\,dx', 'Find $\\int x dx$'],
])('%s is the same problem however it is set', async (...texts) => {
  expect((await keptOf(texts)).map(({ problem }) => problem)).toEqual([texts[0]])
})

test('openmath: a problem stays where 2 of 16 sampled answers match, be they a list, boxed or rows of their own', async () => {
  const right = (n: number) => [...Array(n).fill('7'), ...Array(16 - n).fill('8')]
  const row = (problem: string, rest: object) => ({
    problem,
    expected_answer: '7',
    problem_type: 'has_answer_extracted',
    ...rest,
  })
  const { problems, dropped } = await prepare(
    rowsOf([
      row('one right', { answers: right(1) }),
      row('two right', { answers: right(2) }),
      row('boxed', { generated_solutions: ['so \\boxed{7}', 'thus \\boxed{7.0}'] }),
      row('rows', { generated_solution: 'we get \\boxed{7}' }),
      row('rows', { generated_solution: 'we get \\boxed{ 7 }' }),
      row('none', {}),
      row('no answer', { problem_type: 'no_answer_extracted' }),
      // The 17th and 18th do not count.
      row('late', { answers: [...right(1), '7', '7'] }),
      row('elsewhere', { id: 'e' }),
    ]),
    {
      ...{ set: openmath, integer: true, agreement: { least: 2, of: 16 } },
      answers: rowsOf([
        { problem: 'Elsewhere', answers: ['7'] },
        { id: 'e', answer: '7' },
      ]),
    },
  )
  expect(problems.map(({ problem }) => problem)).toEqual(['two right', 'boxed', 'rows', 'elsewhere'])
  expect(dropped).toEqual({
    'fewer than 2 of 16 sampled answers match': 2,
    'no sampled answers': 1,
    'problem_type is another kind': 1,
    'repeats the problem of an earlier row': 1,
  })
})

test('eight words in a row with an evaluation problem are too many, however they are set; seven are not', () => {
  const evaluation = decontaminator(8)
  evaluation.add('Find the sum of all integer bases $b>9$ for which it divides.')
  evaluation.add('Compute two.')
  expect(evaluation.overlaps('Please FIND the sum,  of all\ninteger \\emph{bases} today.')).toBe(false)
  expect(evaluation.overlaps('Now find the sum of all integer bases (b) as well')).toBe(true)
  expect(evaluation.overlaps('find the sum of all integer bases')).toBe(false)
  expect(evaluation.overlaps('Compute  TWO')).toBe(true)
  expect(evaluation.overlaps('Compute two and then compute three more numbers of that kind')).toBe(false)
})

test.each([
  ['求所有满足条件的正整数的和', '请问:求所有满足条件的正整数的乘积', '请问:正整数的和'],
  ['すべての正の整数を求めよ', '次のすべての正の整数を数えよ', '整数を求めよ'],
  ['จงหาจำนวนเต็มบวกทั้งหมด', 'ช่วยจงหาจำนวนเต็มลบ', 'จงหาผลบวก'],
])('eight letters in a row are too many where a script sets no blanks: %s', (known, near, far) => {
  const evaluation = decontaminator(8)
  evaluation.add(known)
  expect([evaluation.overlaps(near), evaluation.overlaps(far)]).toEqual([true, false])
})

const anyRow = fc.oneof(
  fc.record({
    problem: fc.constantFrom('a', 'A', 'b', 'b!', 'b.', 'one two three four five six seven eight nine'),
    answer: fc.oneof(fc.integer(), fc.string()),
  }),
  fc.constant(undefined),
  fc.jsonValue(),
)

test('every row is kept, broken or dropped, once; and the order follows from the seed alone', () =>
  fc.assert(
    fc.asyncProperty(fc.array(anyRow, { maxLength: 30 }), fc.integer({ min: 0, max: 9 }), async (rows, seed) => {
      const evaluation = decontaminator(8)
      evaluation.add('one two three four five six seven eight')
      const options = { set: dapo, integer: true, evaluation, seed }
      const result = await prepare(rowsOf(rows), options)
      const sum = (counts: Readonly<Record<string, number>>) => Object.values(counts).reduce((a, b) => a + b, 0)
      expect(result.rows).toBe(rows.length)
      expect(result.problems.length + sum(result.broken) + sum(result.dropped)).toBe(rows.length)
      expect(new Set(result.problems.map(({ id }) => id)).size).toBe(result.problems.length)
      const again = await prepare(rowsOf(rows), options)
      expect(again.problems).toEqual(result.problems)
    }),
  ))

test('a problem keeps its place among the others when rows are added', async () => {
  const rows = Array.from({ length: 50 }, (_, k) => ({ problem: `number ${k}`, answer: k }))
  const texts = async (n: number, seed: number) =>
    (await prepare(rowsOf(rows.slice(0, n)), { set: dapo, integer: true, seed })).problems.map(p => p.problem)
  const [few, many] = [await texts(20, 1), await texts(50, 1)]
  expect(many.filter(text => few.includes(text))).toEqual(few)
  expect(few).not.toEqual(rows.slice(0, 20).map(r => r.problem))
  expect(await texts(20, 2)).not.toEqual(few)
})

const sets: readonly [string, string, number][] = [
  ['aime24', 'aime24.jsonl', 30],
  ['aime25', 'aime25.jsonl', 30],
  ['hmmt25', 'hmmt25-feb.jsonl', 30],
  ['math500', 'math500.jsonl', 500],
  ['gsm8k', 'gsm8k.test.jsonl', 1319],
]
test.each(sets)('%s as it is published: every row comes out, and a recipe reads it', async (name, from, rows) => {
  if (!existsSync(join(real, from))) return process.stderr.write(`${join(real, from)} is not here: not tested\n`)
  const report = await reportOf([name, '--from', join(real, from), '--out', `${name}.jsonl`, '--order', 'published'])
  expect(report).toMatchObject({ rows, kept: rows, broken: {}, dropped: {}, seed: null })
  const yaml = file(`${name}.yaml`)
  writeFileSync(yaml, `model: {from: directory, path: /m}\ndata: {file: ${name}.jsonl}\n`)
  const { recipe, config } = loadRecipe(yaml)
  const source = await recipe.tasks(config.value)
  expect(source.size).toBe(rows)
  expect(source.train(rows + 3)).toEqual(source.train(3))
  return undefined
})

test('the whole of a set leaves nothing when it is decontaminated against itself', async () => {
  const from = write('self.jsonl', [{ problem: 'a b c d e f g h i', answer: 1 }])
  const { code, stderr } = await data(['dapo', '--from', from, '--out', 'self.out', '--against', from])
  expect(code).toBe(2)
  expect(stderr).toMatch(/none of 1 rows of .* is left: 1 shares 8 words in a row/)
  expect(existsSync(file('self.out'))).toBe(false)
})

/** parquet is written by another library, in a process that loads ES modules. */
async function parquetOf(name: string, columns: object): Promise<string> {
  const script = `import('hyparquet-writer').then(w => w.parquetWriteFile({ filename: process.argv[1], columnData: JSON.parse(process.argv[2]), rowGroupSize: 2 }))`
  await promisify(execFile)(process.execPath, ['-e', script, file(name), JSON.stringify(columns)], { cwd: __dirname })
  return file(name)
}

test('parquet is read row group by row group, and a torn one is refused', async () => {
  const from = await parquetOf('p.parquet', [
    { name: 'prompt', data: ['one?', 'two?', 'three?', 'four?', 'five?'] },
    { name: 'solution', data: ['1', '2', '3', '4', '1/2'] },
  ])
  const report = await reportOf(['dapo', '--from', from, '--out', 'p.out', '--order', 'published'])
  expect(report).toMatchObject({ rows: 5, kept: 4, dropped: { 'answer is not an integer': 1 } })
  expect(written('p.out').map((row: { answer: string }) => row.answer)).toEqual(['1', '2', '3', '4'])
  const torn = file('torn.parquet')
  writeFileSync(torn, readFileSync(from).subarray(0, 100))
  const { code, stderr } = await data(['dapo', '--from', torn, '--out', 'q.out'])
  expect([code, stderr]).toEqual([2, expect.stringContaining('torn.parquet cannot be read as parquet')])
})

/** Plays the hub: a listing in pages, files behind a redirect. */
async function hub(files: Readonly<Record<string, Buffer>>, seen: string[] = []): Promise<string> {
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url} ${request.headers.authorization ?? ''}`.trim())
    const url = new URL(request.url!, 'http://hub')
    const names = Object.keys(files)
    if (url.pathname.startsWith('/api/datasets/gated/')) return response.writeHead(401).end()
    if (/^\/api\/datasets\/[^/]+\/[^/]+\/tree\/main$/.test(url.pathname)) {
      const page = Number(url.searchParams.get('cursor') ?? 0)
      const next = `<http://${request.headers.host}${url.pathname}?cursor=${page + 1}>; rel="next"`
      const entry = names[page]!
      response.writeHead(200, page + 1 < names.length ? { link: next } : {})
      return response.end(JSON.stringify([{ type: 'file', path: entry, size: files[entry]!.length, oid: 'x' }]))
    }
    const [, resolved] = /\/resolve\/main\/(.+)$/.exec(url.pathname) ?? []
    if (resolved !== undefined) return response.writeHead(302, { location: `/cdn/${resolved}` }).end()
    const found = files[url.pathname.slice('/cdn/'.length)]
    if (found === undefined) return response.writeHead(404).end()
    return response.end(found)
  })
  servers.push(server)
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

test('from the hub: a listing of more than 200 pages is refused, not cut', async () => {
  const files = Object.fromEntries(Array.from({ length: 201 }, (_, n) => [`${n}.jsonl`, Buffer.from('{}')]))
  const options = { repo: 'a/b', paths: /^0\.jsonl$/, cache: file('pages') }
  const { '200.jsonl': _last, ...whole } = files
  expect(await hubFiles({ ...options, endpoint: await hub(whole, []) })).toHaveLength(1)
  await expect(hubFiles({ ...options, endpoint: await hub(files, []) })).rejects.toMatchObject({
    code: 'data.hub_answer',
    message: expect.stringContaining('more than 200 pages'),
  })
})

test('from the hub: the files of a split are fetched once, and read', async () => {
  const rows = (k: number) => Buffer.from(`${JSON.stringify({ question: `What is ${k}?`, answer: `${k}` })}\n`)
  const seen: string[] = []
  const endpoint = await hub(
    { 'README.md': Buffer.from('x'), 'aime2025-I.jsonl': rows(1), 'aime2025-II.jsonl': rows(2) },
    seen,
  )
  const env = { HF_ENDPOINT: endpoint, HF_TOKEN: 'hf_x' }
  const once = await data(['aime25', '--from', 'hub', '--out', 'h.out', '--json'], env)
  expect(JSON.parse(once.stdout)).toMatchObject({ rows: 2, kept: 2 })
  expect(written('h.out').map((row: { answer: string }) => row.answer)).toEqual(['1', '2'])
  expect(seen[0]).toBe('GET /api/datasets/opencompass/AIME2025/tree/main?recursive=true Bearer hf_x')
  const downloads = () => seen.filter(line => line.includes('/resolve/')).length
  expect(downloads()).toBe(2)
  expect((await data(['aime25', '--from', 'hub', '--out', 'h.out', '--json'], env)).code).toBe(0)
  expect(downloads()).toBe(2)
})

test('a hub that is not there, refuses, or has other files says so, and what to do', async () => {
  const nobody = await data(['dapo', '--from', 'hub', '--out', 'n.out'], { HF_ENDPOINT: 'http://127.0.0.1:9' })
  expect(nobody.code).toBe(1)
  expect(nobody.stderr).toMatch(/data set open-r1\/DAPO-Math-17k-Processed on 127\.0\.0\.1:9 cannot be reached/)
  expect(nobody.stderr).toMatch(/--from FILE.*HF_ENDPOINT/)
  expect(nobody.stderr).toContain('code: data.hub_unreachable')
  const endpoint = await hub({ 'README.md': Buffer.from('x') })
  const env = { HF_ENDPOINT: endpoint }
  expect((await data(['dapo', '--from', 'hub', '--out', 'n.out'], env)).stderr).toContain('data.hub_missing')
  expect((await data(['dapo', '--from', 'hub:gated/x', '--out', 'n.out'], env)).stderr).toMatch(
    /refused the request \(HTTP 401\)[\s\S]*HF_TOKEN/,
  )
})

test('a hub that stops answering is given up after its deadline, a torn file is not kept', async () => {
  const silent = createServer(() => {})
  const torn = createServer((request, response) =>
    request.url!.includes('/tree/')
      ? response.end(JSON.stringify([{ type: 'file', path: 'a.jsonl', size: 100 }]))
      : response.end('{}'),
  )
  for (const server of [silent, torn]) {
    servers.push(server)
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  }
  const at = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const common = { repo: 'a/b', paths: /a/, cache: file('cache') }
  await expect(hubFiles({ ...common, endpoint: at(silent), idleMs: 300 })).rejects.toMatchObject({
    code: 'data.hub_unreachable',
  })
  await expect(hubFiles({ ...common, endpoint: at(torn) })).rejects.toThrow(/received 2 of 100 bytes/)
  expect(existsSync(file('cache/a/b/main/a.jsonl'))).toBe(false)
})

test.each<[string, readonly string[], RegExp]>([
  ['another set', ['dapoo', '--from', 'x', '--out', 'o'], /did you mean 'dapo'/],
  ['a file that is not there', ['dapo', '--from', 'nowhere.jsonl', '--out', 'o'], /nowhere\.jsonl cannot be read/],
  ['no --out', ['dapo', '--from', 'x'], /--out/],
  [
    'an agreement of more than all',
    ['openmath', '--from', 'x', '--out', 'o', '--agreement', '17/16'],
    /--agreement 17\/16 is not valid; it must be n\/m, or n alone for n\/16, with n ≤ m/,
  ],
  [
    'a split that is not there',
    ['gsm8k', '--from', 'hub', '--out', 'o', '--split', 'dev'],
    /no split 'dev'[\s\S]*train, test/,
  ],
])('%s is refused as wrong usage', async (_title, args, expected) => {
  const { code, stderr } = await data(args)
  expect(code).toBe(2)
  expect(stderr).toMatch(expected)
})

test('an --out that cannot be written is refused as wrong usage, and leaves nothing beside it', async () => {
  const from = write('fine.jsonl', [{ problem: 'a', answer: 1 }])
  mkdirSync(file('taken'))
  const { code, stderr } = await data(['dapo', '--from', from, '--out', 'taken'])
  expect([code, stderr]).toEqual([
    2,
    expect.stringMatching(
      /taken cannot be written: .*\n.*hint: remove the cause, or choose another path\n.*cli\.cannot_write/,
    ),
  ])
  expect(stderr).not.toMatch(/^\s+at /m)
  expect(existsSync(file('taken.part'))).toBe(false)
})

test('a set of which too many rows are broken is refused, with the first places', async () => {
  const from = write('bad.jsonl', [{ problem: 'a', answer: 1 }, '{', '}', { problem: 'b' }])
  const { code, stderr } = await data(['dapo', '--from', from, '--out', 'b.out'])
  expect(code).toBe(2)
  expect(stderr).toMatch(
    /3 of 4 rows are broken: 2 not JSON, 1 no answer; the first are at bad\.jsonl:2, bad\.jsonl:3, bad\.jsonl:4/,
  )
})

test('gsm8k, prepared: the recipe of that name reads its worked answers as it reads the published file', async () => {
  const rows = Array.from({ length: 30 }, (_, k) => ({
    question: `Tom has ${k} and gets 2. How many?`,
    answer: `Tom has ${k}+2=<<${k}+2=${k + 2}>>${k + 2}.\n#### ${k + 2}`,
  }))
  const from = write('g.jsonl', rows)
  await data(['gsm8k', '--from', from, '--out', 'g.out', '--order', 'published'])
  const tasks = async (name: string) => {
    const { recipe, config } = loadRecipe('gsm8k', [`data.file=${file(name)}`, 'evaluation.problems=1'])
    const source = await recipe.tasks(config.value)
    return Array.from({ length: 30 }, (_, k) => source.train(k).truth)
  }
  expect(await tasks('g.out')).toEqual(await tasks('g.jsonl'))
})
