/** GSM8K: rows of a file, exact arithmetic, demonstrations that the real tool agrees with, and who is trained on what. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { pythonToolIn } from '../../actors/tools/pythonTool'
import { recipeSchema } from '../../config'
import { parseToolCalls, toolResultText } from '../../kernels'
import { gsm8k } from '../../recipes/gsm8k'
import { equal, evaluate } from '../../recipes/gsm8k/arithmetic'
import { type Demonstration, type DemonstrationKind, demonstrationOf } from '../../recipes/gsm8k/demonstrations'
import { type Gsm8kRow, parseGsm8k } from '../../recipes/gsm8k/rows'
import { planOf } from '../../recipes/gsm8k/tasks'
import { openSandbox } from '../../sandbox'

const line = (question: string, answer: unknown) => JSON.stringify({ question, answer })

/** A row as it comes out of a file. */
function row(solution: string, truth: string, question = 'How many?'): Gsm8kRow {
  return parseGsm8k(line(question, `${solution}\n#### ${truth}`)).rows[0]!
}

// Rows of our own making, with what real ones have: money, thousands, decimals, a note that gives a later operand.
const solutions: readonly (readonly [string, string])[] = [
  ['A jar costs $<<3*4=12>>12, two cost <<12*2=24>>24.', '24'],
  ['Half of it is <<7/2=3.5>>3.5, four halves <<3.5*4=14>>14.', '14'],
  ['A tenth is <<0.10*250=25>>25; what is left is <<250-25=225>>225.', '225'],
  ['They lose <<5-9=-4>>-4 and then <<-4-(2+1)=-7>>-7.', '-7'],
  ['He pays <<08*1.50=12>>12, so <<2000-12=1988>>$1,988 are left.', '1,988'],
  ['A third of them is <<1/3*99=33>>33.', '33'],
  ['Three tenths make <<0.1*3=.3>>.3, and ten of those <<.3*10=3>>3.', '3'],
]

/** The demonstration of each kind that a solution has, found by trying questions. */
function demonstrationsOf(solution: string, truth: string): Map<DemonstrationKind, Demonstration[]> {
  const kinds = new Map<DemonstrationKind, Demonstration[]>()
  for (let k = 0; k < 40; k++) {
    const made = demonstrationOf(row(solution, truth, `How many are ${k}?`), 1)
    if (typeof made === 'string') throw new Error(`${solution}: ${made}`)
    kinds.set(made.kind, [...(kinds.get(made.kind) ?? []), made])
  }
  return kinds
}

/** Expressions with their value; undefined where something is divided by zero. */
const expressions = fc.letrec<{ node: { text: string; value: number | undefined } }>(tie => ({
  node: fc.oneof(
    { maxDepth: 4 },
    fc.integer({ min: 0, max: 99 }).map(value => ({ text: `${value}`, value })),
    fc.tuple(tie('node'), fc.constantFrom('+', '-', ' * ', '/'), tie('node')).map(([a, sign, b]) => {
      const text = `(${a.text}${sign}${b.text})`
      if (a.value === undefined || b.value === undefined) return { text, value: undefined }
      if (sign === '/') return { text, value: Math.abs(b.value) < 1e-9 ? undefined : a.value / b.value }
      return { text, value: sign === '+' ? a.value + b.value : sign === '-' ? a.value - b.value : a.value * b.value }
    }),
  ),
})).node

test('every line is a row or is counted under one reason, and keeps its number', () => {
  const { rows, dropped } = parseGsm8k(
    [
      line('How many?', 'It is <<1+1=2>>2.\n#### 2'),
      '',
      'not json',
      '7',
      line('', '#### 1'),
      line('How many?', 3),
      line('How many?', 'no mark'),
      line('How much?', '#### 2.5'),
      line('How many sheep?', 'Many.\n#### 1,234'),
    ].join('\n'),
  )
  expect(rows).toEqual([
    { line: 1, question: 'How many?', solution: 'It is <<1+1=2>>2.', notes: ['1+1=2'], truth: '2' },
    { line: 9, question: 'How many sheep?', solution: 'Many.', notes: [], truth: '1234' },
  ])
  expect(dropped).toEqual({
    'not JSON': 1,
    'not an object': 1,
    'no question': 1,
    'no answer': 1,
    'no final answer': 1,
    'answer is not an integer': 1,
  })
})

test('no line makes the reader throw', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          fc.string(),
          fc.json(),
          fc.string().map(s => line('q', s)),
        ),
      ),
      lines => {
        const { rows, dropped } = parseGsm8k(lines.join('\n'))
        const counted = Object.values(dropped).reduce((sum, n) => sum + n, rows.length)
        expect(counted).toBe(
          lines
            .join('\n')
            .split('\n')
            .filter(text => text.trim() !== '').length,
        )
      },
    ),
  )
})

test('arithmetic agrees with that of numbers, and refuses everything else', () => {
  fc.assert(
    fc.property(expressions, ({ text, value }) => {
      const got = evaluate(text)
      if (got === undefined) return value === undefined || text.length > 200
      return Math.abs(Number(got.numerator) / Number(got.denominator) - value!) <= 1e-6 * Math.max(1, Math.abs(value!))
    }),
  )
  for (const wrong of ['', '1+', '(1', '1)', '2**3', '1 2', 'x', '1/0', '1/(2-2)', '0x10', `${'('.repeat(60)}1`]) {
    expect(evaluate(wrong)).toBeUndefined()
  }
  expect(equal(evaluate('0.1*3')!, evaluate('.30')!)).toBe(true)
  expect(evaluate('2-3-4')).toEqual({ numerator: -5n, denominator: 1n })
})

test('what a demonstration says that the tool answered is what the tool answers', async () => {
  const sandbox = await openSandbox({ lanes: 1 })
  const tool = pythonToolIn(sandbox)
  try {
    for (const [solution, truth] of solutions) {
      const number = truth.replace(',', '')
      for (const [kind, made] of demonstrationsOf(solution, truth)) {
        // The two failures of `repairs` are among the first few.
        const distinct = new Map(made.map(({ messages }) => [messages[1]!.content, messages]))
        for (const messages of distinct.values()) {
          const turns = messages.slice(1, -1)
          for (let at = 0; at < turns.length; at += 2) {
            const [call] = parseToolCalls(turns[at]!.content).calls
            if (call?.kind !== 'call') throw new Error(`no call: ${turns[at]!.content}`)
            const ran = await tool(call.arguments, { timeoutMs: 10_000 }, new AbortController().signal)
            expect(turns[at + 1]).toEqual({ role: 'tool', content: toolResultText(ran) })
          }
          expect(turns.at(-1)!.content).toBe(`Tool call success\nstdout: ${number}`)
          expect(messages.at(-1)!.content).toBe(`<answer>\\boxed{${number}}</answer>`)
          expect(turns).toHaveLength(kind === 'solves' ? 2 : 4)
        }
      }
    }
  } finally {
    await sandbox.close()
  }
}, 60_000)

test('a good share of demonstrations has two calls, where the notes allow it', () => {
  const two = demonstrationsOf(...solutions[0]!)
  expect([...two.keys()].sort()).toEqual(['repairs', 'solves', 'splits'])
  expect(demonstrationsOf(...solutions[5]!).has('splits')).toBe(false) // one note only
  expect(demonstrationsOf(...solutions[1]!).has('splits')).toBe(false) // 3.5 is not what round() would print
})

test('what an earlier note gave is used by its name, and written out in a call of its own', () => {
  const kinds = demonstrationsOf(...solutions[0]!)
  expect(kinds.get('solves')![0]!.messages[1]!.content).toContain('x1 = 3 * 4\\nx2 = x1 * 2\\nprint(round(x2))')
  expect(kinds.get('splits')![0]!.messages[3]!.content).toContain('"x2 = 12 * 2\\nprint(round(x2))"')
})

test('a row whose notes do not lead to its answer gives no demonstration, and says why', () => {
  const cases = [
    ['No notes.', '3', 'no calculator notes'],
    ['<<2+2=5>>5', '5', 'a note is wrong or rounded'],
    ['<<10/3=3.33>>3.33 and <<1+1=2>>2', '2', 'a note is wrong or rounded'],
    ['<<2+x=5>>', '5', 'notes are not arithmetic'],
    ['<<5>>', '5', 'notes are not arithmetic'],
    ['<<20%*5=1>>', '1', 'notes are not arithmetic'],
    ['<<2+2=4>>', '5', 'the last note is not the answer'],
    ['<<5=5>>', '5', 'a note calculates nothing'],
    [`<<${'1+'.repeat(300)}1=301>>`, '301', 'notes are not arithmetic'],
    ['<<1+1=2>>'.repeat(40), '2', 'too long'],
  ] as const
  for (const [solution, truth, reason] of cases) expect(demonstrationOf(row(solution, truth), 1)).toBe(reason)
})

const many = Array.from({ length: 300 }, (_, k) => row(`It is <<${k}+1=${k + 1}>>.`, `${k + 1}`, `What follows ${k}?`))
const questions = (rows: readonly Gsm8kRow[]) => rows.map(r => r.question)

test('no question that may be evaluated on is trained on or demonstrated, in any spelling', () => {
  const options = { seed: 1, demonstrations: 1000, maxNotes: null }
  const respelled = many.map(r => ({ ...r, question: r.question.toUpperCase().replace(' ', '  ') }))
  const plan = planOf([...many, ...respelled], undefined, options)
  const key = (text: string) => text.toLowerCase().replace(/\s+/g, ' ')
  const held = new Set(questions(plan.evaluation).map(key))
  expect(held.size).toBeGreaterThan(10)
  const shown = plan.demonstrations.map(d => d.messages[0]!.content)
  for (const question of [...questions(plan.train), ...shown]) expect(held.has(key(question))).toBe(false)

  const ofFile = planOf(many, respelled.slice(0, 50), options)
  expect(ofFile.evaluation).toHaveLength(50)
  expect(ofFile.train).toHaveLength(250)
  expect(ofFile.dropped).toEqual({ 'also in the evaluation file': 50 })
})

test('which rows are set aside does not change with the other rows, the seed, or the demonstrations', () => {
  const held = (rows: readonly Gsm8kRow[], seed: number, demonstrations: number) =>
    questions(planOf(rows, undefined, { seed, demonstrations, maxNotes: null }).evaluation).sort()
  const all = held(many, 1, 10)
  expect(held(many, 2, 100)).toEqual(all)
  const half = many.slice(150)
  expect(held(half, 1, 10)).toEqual(all.filter(q => questions(half).includes(q)))
})

test('training begins with demonstrated rows, ends with those that could not be, and has every row once', () => {
  const odd = Array.from({ length: 30 }, (_, k) => row('No notes.', '1', `Is ${k} odd?`))
  const plan = planOf([...odd, ...many], undefined, { seed: 1, demonstrations: 40, maxNotes: null })
  const shown = plan.demonstrations.map(d => d.messages[0]!.content)
  expect(shown).toHaveLength(40)
  expect(questions(plan.train).slice(0, 40)).toEqual(shown)
  const noteless = plan.train.map(r => r.notes.length === 0)
  const first = noteless.indexOf(true)
  expect(first).toBeGreaterThan(200)
  expect(noteless.slice(first).every(Boolean)).toBe(true)
  expect(new Set(questions(plan.train)).size).toBe(plan.train.length)
})

test('rows with more calculator notes than asked for are left out and counted', () => {
  const long = row('<<1+1=2>><<2+1=3>>', '3', 'Long?')
  const options = { seed: 1, demonstrations: 0 }
  expect(planOf([...many, long], undefined, { ...options, maxNotes: 1 }).dropped).toEqual({
    'more than 1 calculator notes': 1,
  })
  expect(planOf([long], undefined, { ...options, maxNotes: null }).dropped).toEqual({})
})

describe('the recipe', () => {
  let home: string
  beforeAll(() => {
    home = mkdtempSync(join(tmpdir(), 'troupe-gsm8k-'))
  })
  afterAll(() => rmSync(home, { recursive: true, force: true }))

  const file = (name: string, lines: readonly string[]) => {
    const path = join(home, name)
    writeFileSync(path, `${lines.join('\n')}\n`)
    return path
  }
  const good = many.map(r => line(r.question, `${r.solution}\n#### ${r.truth}`))
  const config = (data: object, evaluation = 4) =>
    recipeSchema.parse({ ...gsm8k.config, data, evaluation: { problems: evaluation } })

  test('gives tasks, and demonstrations under the same system message, from a file', async () => {
    const given = config({ file: file('good.jsonl', [...good, 'broken']) })
    const source = await gsm8k.tasks(given)
    expect(source.dropped).toEqual({ 'not JSON': 1 })
    expect(source.train(0)).toMatchObject({ reward: '', messages: [{ role: 'system' }, { role: 'user' }] })
    expect(source.train(7)).toEqual((await gsm8k.tasks(given)).train(7))
    expect(source.train(0)).not.toEqual(source.train(1))
    expect(source.evaluation(3).id).toMatch(/^gsm8k\/eval\//)
    const demonstrations = await gsm8k.demonstrations!(given)
    expect(demonstrations).toHaveLength(256)
    expect(demonstrations[0]![0]).toEqual(source.train(0).messages[0])
  })

  test('training goes round when the rows are used up', async () => {
    const source = await gsm8k.tasks(config({ file: file('few.jsonl', good.slice(0, 20)) }, 0))
    const ids = new Set(Array.from({ length: 100 }, (_, k) => source.train(k).id))
    expect(ids.size).toBeLessThanOrEqual(20)
    expect(source.train(ids.size)).toEqual(source.train(0))
  })

  test.each([
    ['no file is named', () => ({}), /needs a file/],
    ['the file is not there', () => ({ file: join(home, 'nowhere.jsonl') }), /cannot be read/],
    ['the file is empty', () => ({ file: file('empty.jsonl', []) }), /0 of 0 rows/],
    [
      'more than a fifth of the rows cannot be used',
      () => ({ file: file('bad.jsonl', [...good.slice(0, 7), 'no', line('q', '#### 1.5')]) }),
      /2 of 9 rows cannot be used: 1 not JSON, 1 answer is not an integer/,
    ],
    ['too few rows are set aside', () => ({ file: file('short.jsonl', good.slice(0, 8)) }), /asks for 4 rows/],
    [
      'no row is left',
      () => ({ file: file('hard.jsonl', [line('q', '<<1+1=2>><<1+1=2>>\n#### 2')]), maxNotes: 1 }),
      /no row/,
    ],
  ])('is refused when %s', async (_, data, message) => {
    await expect(gsm8k.tasks(config(data()))).rejects.toMatchObject({
      code: 'config.no_data',
      message: expect.stringMatching(message),
      hint: expect.anything(),
    })
  })

  test('names an unknown field of its data', async () => {
    await expect(gsm8k.tasks(config({ fil: 'x' }))).rejects.toMatchObject({ code: 'config.invalid' })
  })
})
